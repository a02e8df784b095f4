// Package sink has writers for tests that look at what other goroutines write.
package sink

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a bytes.Buffer that is safe to read while others write to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Expecting is a writer that closes Seen once its input contains a text.
type Expecting struct {
	Buffer
	Seen chan struct{}
	text string
}

// Expect returns a writer that waits for text, which is not empty.
func Expect(text string) *Expecting { return &Expecting{text: text, Seen: make(chan struct{})} }

// Write implements io.Writer. One goroutine at a time calls it.
func (e *Expecting) Write(p []byte) (int, error) {
	before := strings.Contains(e.String(), e.text)
	n, err := e.Buffer.Write(p)
	if !before && strings.Contains(e.String(), e.text) {
		close(e.Seen)
	}
	return n, err
}

// Broken is a writer whose writes all fail.
type Broken struct{ Err error }

// Write implements io.Writer.
func (b Broken) Write([]byte) (int, error) { return 0, b.Err }
