package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// outside is the part of a Bell that is there for other processes: a counter in the
// kernel, which the Go runtime polls along with the network.
type outside struct {
	file    *os.File
	reading sync.WaitGroup
}

// NewBell makes a bell. Close ends its goroutine.
func NewBell() (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shm: make a bell: %w", err)
	}
	return bellOf(os.NewFile(uintptr(fd), "eventfd:elrun")), nil
}

// bellOf returns the bell that is rung by a file.
func bellOf(file *os.File) *Bell {
	b := newBell()
	b.file = file
	b.reading.Go(b.listen)
	return b
}

// listen hands on the ringing of other processes.
func (b *Bell) listen() {
	var count [8]byte
	for {
		if _, err := b.file.Read(count[:]); err != nil {
			return // closed
		}
		b.ring()
	}
}

// File is what other processes give to TakeRope. The bell owns it.
func (b *Bell) File() *os.File { return b.file }

// Close ends the ringing from outside. Nobody may sleep any more.
func (b *Bell) Close() error {
	err := b.file.Close()
	b.reading.Wait()
	return err
}

// Rope rings the bell of another process.
type Rope struct{ fd int }

// TakeRope returns the rope of a bell whose file another process has sent. It takes over
// the file, also if it fails.
func TakeRope(file *os.File) (*Rope, error) {
	// A descriptor of its own, as the runtime polls those of files, and would find them
	// ready whenever somebody rings.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = checkBell(fd)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: take a bell's rope: %w", err), closeRope(fd))
	}
	return &Rope{fd}, nil
}

// checkBell returns an error if a write to the file could wait.
func checkBell(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_NONBLOCK == 0 {
		err = errors.New("writing to it could block")
	}
	return err
}

func closeRope(fd int) error {
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// ring wakes what sleeps in the other process. It does not block.
func (r *Rope) ring() {
	any := [8]byte{1} // whatever number that is to this machine
	// It fails only where the bell was rung so often that it is about to be heard.
	_, _ = unix.Write(r.fd, any[:])
}

// Close lets go of the rope.
func (r *Rope) Close() error { return closeRope(r.fd) }
