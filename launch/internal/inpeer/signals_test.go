package inpeer

import (
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"github.com/elrun/elrun/launch/internal/ctl"
)

func TestSignalsLeave(t *testing.T) {
	// The program registers for the signal as well.
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	s := newSignals()
	asked := make(chan struct{})
	s.onTerm(func() { close(asked) })
	ctl.Terminate()
	<-asked
	<-ctx.Done()
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestSignalsUnused(t *testing.T) {
	s := newSignals()
	s.onTerm(func() { t.Error("asked to leave without a signal") })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := newSignals().Close(); err != nil {
		t.Error(err)
	}
}
