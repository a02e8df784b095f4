package inpeer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// Sidecar is launch.Sidecar.
type Sidecar struct {
	program *proc.Foreign
	exit    func(int) // os.Exit, replaced in tests
	once    sync.Once // for Close
	closed  chan struct{}
	work    sync.WaitGroup // owns the goroutines that watch the program
	waits   waits
	link    atomic.Pointer[Link] // to the launcher; nil before Init, and where there is none
	arena   *shm.Arena           // has the memory of the program; nil before Map
}

// waits are what a sidecar waits for. It is safe for concurrent use.
type waits struct {
	mu      sync.Mutex
	told    bool      // Computing was called
	program int       // calls of Computing that are not done
	since   time.Time // of the first of them
	reasons []string  // of calls of Busy that are not done
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

// Map implements launch.Sidecar.
func (s *Sidecar) Map(file *os.File, size int) ([]byte, error) {
	a, err := shm.AdoptArena(file, size)
	if err != nil {
		return nil, fmt.Errorf("launch: memory of process %d: %w", s.program.PID, err)
	}
	s.arena = a
	return a.Bytes()[:size:size], nil
}

// memory returns the arena of this process; nil if the transport makes it.
func (s *Sidecar) memory() *shm.Arena {
	if s == nil {
		return nil
	}
	return s.arena
}

// Close implements launch.Sidecar.
func (s *Sidecar) Close() {
	s.once.Do(func() { close(s.closed) })
	s.work.Wait()
	s.program.Close()
}

// Init is launch.InitFor.
func (s *Sidecar) Init(ctx context.Context) (*elastic.Group, error) {
	g, err := initialize(ctx, s, nil)
	if err == nil {
		s.work.Go(func() { s.tend(g) })
	}
	return g, err
}

// Computing implements launch.Sidecar.
func (s *Sidecar) Computing() (done func()) {
	w := &s.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = true
	w.program++
	if w.program == 1 {
		w.since = time.Now()
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.program--
	})
}

// Busy implements launch.Sidecar.
func (s *Sidecar) Busy(what string) (done func()) {
	w := &s.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons = append(w.reasons, what)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if i := slices.Index(w.reasons, what); i >= 0 {
			w.reasons = slices.Delete(w.reasons, i, i+1)
		}
	})
}

// now returns since when the sidecar waits for its program, zero if it does not, and the last reason that
// the program has given for that, empty if none. A sidecar that never calls Computing counts as waiting since
// its peer has last moved.
func (w *waits) now(moved time.Time) (since time.Time, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.program > 0:
		since = w.since
	case !w.told:
		since = moved
	}
	if n := len(w.reasons); n > 0 {
		reason = w.reasons[n-1]
	}
	return since, reason
}

// tend looks at the program until the sidecar is closed: it steps down for a program that is stopped, and
// reports a program that computes for long as busy.
func (s *Sidecar) tend(g *elastic.Group) {
	var v programWatch
	var busy string
	done := func() {}
	defer func() { done() }()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.closed:
			return
		}
		stopped := s.program.Stopped()
		if v.look(stopped) {
			g.StepDown("its program is stopped")
		}
		if stopped {
			continue // the reason stays
		}
		since, why := s.waits.now(s.link.Load().lastMoved())
		if v.computes(time.Now(), since, s.program.Effort) {
			why = cmp.Or(why, "computing")
		}
		if why == "" && busy != "" {
			done()
			done = func() {}
		}
		if busy = why; busy != "" {
			done = g.Busy(busy) // again, because this peer may have another identity
		}
	}
}

// awaitRunning waits until the program is not stopped.
func (s *Sidecar) awaitRunning(ctx context.Context) error {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for s.program.Stopped() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// openLink opens the link to the launcher. A nil Sidecar stands for a process that is the program itself.
func (s *Sidecar) openLink(fd int) (*Link, error) {
	if s == nil {
		return OpenLink(fd)
	}
	a, err := openLink(fd, s.program, s.abandon)
	s.link.Store(a)
	return a, err
}

// Fail implements launch.Sidecar.
func (s *Sidecar) Fail(text string) {
	if a := s.link.Load(); a != nil {
		a.Post(wire.Message{Failed: wire.ClipNote(text)}, wire.Result)
	}
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
