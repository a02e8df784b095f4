package inpeer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
)

// Sidecar is launch.Sidecar.
type Sidecar struct {
	program *proc.Foreign
	exit    func(int) // os.Exit, replaced in tests
	once    sync.Once // for Close
	closed  chan struct{}
	work    sync.WaitGroup // owns the goroutine that waits for the end of the program
}

// NewSidecar is launch.NewSidecar.
func NewSidecar(pid int) (*Sidecar, error) { return newSidecar(pid, os.Exit) }

// newSidecar is NewSidecar for a function that ends this process.
func newSidecar(pid int, exit func(int)) (*Sidecar, error) {
	program, err := proc.OpenForeign(pid)
	if err != nil {
		return nil, err
	}
	signal.Ignore(syscall.SIGINT) // of a terminal: the program gets it, too, and decides
	s := &Sidecar{program: program, exit: exit, closed: make(chan struct{})}
	s.work.Go(func() {
		select {
		case <-program.Ended():
			exit(1)
		case <-s.closed:
		}
	})
	return s, nil
}

// Watch implements launch.Sidecar.
func (s *Sidecar) Watch(word *os.File) error {
	watched, err := shm.WatchForeign(word)
	switch {
	case errors.Is(err, shm.ErrUnsupported):
		return nil // the end of the process tells
	case err != nil:
		return fmt.Errorf("launch: watch process %d: %w", s.program.PID, err)
	}
	s.work.Go(func() {
		defer watched.Close()
		select {
		case <-watched.Died():
			s.exit(1)
		case <-s.closed:
		}
	})
	return nil
}

// Close implements launch.Sidecar.
func (s *Sidecar) Close() {
	s.once.Do(func() { close(s.closed) })
	s.work.Wait()
	s.program.Close()
}

// Init is launch.InitFor.
func (s *Sidecar) Init(ctx context.Context) (*elastic.Group, error) { return initialize(ctx, s, nil) }

// openLink opens the link to the launcher. A nil Sidecar stands for a process that is the program itself.
func (s *Sidecar) openLink(fd int) (*Link, error) {
	if s == nil {
		return OpenLink(fd)
	}
	return openLink(fd, s.program, s.abandon)
}

// stop asks the program to leave, as elrun stop wants it. A program with a sidecar passes the signal on.
func (s *Sidecar) stop() {
	if s == nil {
		ctl.Terminate()
		return
	}
	s.program.Signal(syscall.SIGTERM)
}

// abandon ends the program and this process, as their launcher has died and the program has not ended.
func (s *Sidecar) abandon(code int) {
	s.program.Signal(syscall.SIGKILL)
	s.exit(code)
}
