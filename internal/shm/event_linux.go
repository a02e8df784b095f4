package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// eventFile is the part of an Event that other processes signal: an eventfd, which the Go runtime
// polls together with the network.
type eventFile struct {
	file    *os.File
	reading sync.WaitGroup
}

// NewEvent returns an event that other processes can signal, through an eventfd. Its goroutine
// turns their signals into signals within this process; Close ends it.
func NewEvent() (*Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shm: make an event: %w", err)
	}
	return eventOf(os.NewFile(uintptr(fd), "eventfd:elrun")), nil
}

// eventOf returns the event of an eventfd.
func eventOf(file *os.File) *Event {
	e := newEvent()
	e.file = file
	e.reading.Go(e.forward)
	return e
}

// forward turns the signals of other processes into signals of the event.
func (e *Event) forward() {
	var count [8]byte
	for {
		if _, err := e.file.Read(count[:]); err != nil {
			return // closed
		}
		e.signal()
	}
}

// File returns the eventfd, which other processes give to OpenWaker. The event owns it.
func (e *Event) File() *os.File { return e.file }

// Close ends the signals of other processes. No goroutine may sleep on the event by then.
func (e *Event) Close() error {
	err := e.file.Close()
	e.reading.Wait()
	return err
}

// Waker signals the Event of another process.
type Waker struct{ fd int }

// OpenWaker returns the waker of an event whose file another process has sent. It closes the
// file, also on failure.
func OpenWaker(file *os.File) (*Waker, error) {
	// Keep a raw descriptor. The runtime polls the descriptor of an os.File, and would wake up at
	// every signal.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = checkNonblocking(fd)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: open the waker of an event: %w", err), closeWaker(fd))
	}
	return &Waker{fd}, nil
}

// checkNonblocking returns an error if a write to the file could block. All handles of an eventfd
// share the flag. The other process sets it, so it is checked and not set here.
func checkNonblocking(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_NONBLOCK == 0 {
		err = errors.New("writing to it could block")
	}
	return err
}

// closeWaker closes a descriptor, unless it is negative, which means that it was never opened.
func closeWaker(fd int) error {
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// signal signals the event. It does not block.
func (w *Waker) signal() {
	any := [8]byte{1} // not 0 in either byte order
	// A write fails only if the eventfd's counter is full. Then the process has unread signals and
	// wakes up anyway.
	_, _ = unix.Write(w.fd, any[:])
}

// Again returns a second handle of the eventfd, which the caller owns and may give to another
// process.
func (e *Event) Again() (*os.File, error) { return duplicate(e.file.Fd()) }

// Again returns a second handle of the eventfd, which the caller owns and may give to a third
// process.
func (w *Waker) Again() (*os.File, error) { return duplicate(uintptr(w.fd)) }

// duplicate returns a new file for the same eventfd.
func duplicate(eventfd uintptr) (*os.File, error) {
	fd, err := unix.FcntlInt(eventfd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: duplicate the file of an event: %w", err)
	}
	return os.NewFile(uintptr(fd), "eventfd:elrun"), nil
}

// Close closes the waker's descriptor. The event stays.
func (w *Waker) Close() error { return closeWaker(w.fd) }
