package inpeer

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// signals turns the first SIGTERM of this process into a request to leave the group. A second
// SIGTERM, later than RepeatPeriod after the first, has its usual effect again. Close restores the
// usual effect.
//
// A peer writes its output to its launcher. After the launcher's death a peer that prints must
// still be able to leave, so SIGPIPE does not end it.
//
// Other parts of this process that register for the signal (signal.Notify) receive it as well.
type signals struct {
	ch chan os.Signal // capacity 1, for the first signal
	// end is closed by Close, which ends the goroutine.
	end  chan struct{}
	once sync.Once
	work sync.WaitGroup
}

// newSignals returns a signals that does nothing before onTerm is called.
func newSignals() *signals { return &signals{ch: make(chan os.Signal, 1), end: make(chan struct{})} }

// onTerm calls f at the first SIGTERM. f must not block for long.
func (s *signals) onTerm(f func()) {
	signal.Notify(s.ch, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // for the life of the process
	s.work.Go(func() {
		defer signal.Stop(s.ch)
		select {
		case <-s.ch:
			f()
		case <-s.end:
			return
		}
		first := time.NewTimer(wire.RepeatPeriod)
		defer first.Stop()
		select {
		case <-first.C:
		case <-s.end:
		}
	})
}

// Close ends the handling of signals and waits for f. It may be called again.
func (s *signals) Close() error {
	s.once.Do(func() { close(s.end) })
	s.work.Wait()
	return nil
}
