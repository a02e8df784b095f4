package launch

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// signals makes the first SIGTERM of this process an invitation to leave the group. One
// that comes later than repeatPeriod after it has its usual effect again. Close gives the
// signal back.
//
// The output of a peer goes to its launcher. When that has died a peer that prints
// something must still be able to leave, so SIGPIPE does not end it.
//
// Whoever else in this process asks for the signal (signal.Notify) gets it as well.
type signals struct {
	ch   chan os.Signal
	end  chan struct{}
	once sync.Once
	work sync.WaitGroup
}

// newSignals returns signals that does nothing before leave.
func newSignals() *signals { return &signals{ch: make(chan os.Signal, 1), end: make(chan struct{})} }

// leave calls f, which must not block for long, at the first SIGTERM.
func (s *signals) leave(f func()) {
	signal.Notify(s.ch, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // for as long as the process lives
	s.work.Go(func() {
		defer signal.Stop(s.ch)
		select {
		case <-s.ch:
			f()
		case <-s.end:
			return
		}
		first := time.NewTimer(repeatPeriod)
		defer first.Stop()
		select {
		case <-first.C:
		case <-s.end:
		}
	})
}

// Close waits for f.
func (s *signals) Close() error {
	s.once.Do(func() { close(s.end) })
	s.work.Wait()
	return nil
}
