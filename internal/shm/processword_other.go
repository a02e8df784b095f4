//go:build !linux

package shm

import "os"

// ProcessWord is a word that a process holds until its program ends.
type ProcessWord struct{}

// HoldWord returns ErrUnsupported.
func HoldWord(int) (*ProcessWord, error) { return nil, ErrUnsupported }

// Rest returns nil.
func (p *ProcessWord) Rest() []byte { return nil }

// ReadRest returns ErrUnsupported.
func ReadRest(*os.File, []byte) error { return ErrUnsupported }

// File returns nil.
func (p *ProcessWord) File() *os.File { return nil }

// Release does nothing.
func (p *ProcessWord) Release() error { return nil }

// WordWatch waits for the ends of programs that hold a ProcessWord.
type WordWatch struct{}

// WatchedWord is a word of another process.
type WatchedWord struct{}

// Watch closes the file and returns ErrUnsupported.
func (w *WordWatch) Watch(file *os.File) (*WatchedWord, error) {
	_ = file.Close() // an error loses nothing, as nothing was written
	return nil, ErrUnsupported
}

// WatchForeign closes the file and returns ErrUnsupported.
func WatchForeign(file *os.File) (*WatchedWord, error) { return new(WordWatch).Watch(file) }

// Died returns nil.
func (w *WatchedWord) Died() <-chan struct{} { return nil }

// Close does nothing.
func (w *WatchedWord) Close() {}
