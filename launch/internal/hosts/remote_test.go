package hosts

import (
	"errors"
	"testing"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// A host reports when it has taken a part, and when its peer takes none any more.
func TestRemoteInput(t *testing.T) {
	h := NewHost(spec.Host{Name: "a"}, nil)
	h.out = wire.NewOutbox(nil)
	p := h.Spawn(0, wire.SpawnOrder{Peers: 1, Input: true}, nil)
	h.handle(wire.Message{Report: wire.Report{Taken: &wire.InputTaken{}}})
	if err := p.Input([]byte("x")); err != nil {
		t.Error(err)
	}
	h.handle(wire.Message{Report: wire.Report{Taken: &wire.InputTaken{Closed: true}}})
	if err := p.Input([]byte("x")); !errors.Is(err, proc.ErrInputClosed) {
		t.Errorf("error %v after the end", err)
	}
	close(p.done)
	if err := p.Input(nil); !errors.Is(err, proc.ErrInputClosed) {
		t.Errorf("error %v without the host", err)
	}
}
