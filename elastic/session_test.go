package elastic

import (
	"context"
	"errors"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
)

// solo is the transport of a session of one member.
type solo struct {
	transport.Transport
	closed int
}

func (*solo) Signals() <-chan transport.Signal { return nil }
func (*solo) Revoke(error)                     {}
func (s *solo) Close() error                   { s.closed++; return nil }

// soloSession returns a session of one member, and its transport.
func soloSession(t *testing.T, epoch uint64) (*Session, *solo) {
	t.Helper()
	s := new(solo)
	c, err := collective.New(s, 0, 1, collective.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Session{View: View{Epoch: epoch}, Comm: c}, s
}

// A session that is left is closed once. A second call of retire only calls its function ended, at
// once.
func TestSessionsRetire(t *testing.T) {
	var n openSessions
	a, first := soloSession(t, 1)
	b, second := soloSession(t, 2)
	if err := n.left(0); err != nil || n.using() != nil {
		t.Errorf("before the first session: %v", err)
	}
	n.use(a)
	if err := n.left(0); err != nil || n.using() != nil {
		t.Errorf("after the session: %v", err)
	}
	n.retiring.Wait()
	again := false
	n.retire(a, func() { again = true })
	n.retire(nil, nil)
	n.use(b)
	n.close()
	if !again || first.closed != 1 || second.closed != 1 {
		t.Errorf("retired again: %v; the sessions were closed %d and %d times", again, first.closed, second.closed)
	}
	c, third := soloSession(t, 3)
	ended := false
	if n.retire(c, func() { ended = true }); !ended || third.closed != 1 {
		t.Error("after close a session is closed by its caller")
	}
}

// After a mistake of the program there is no other session, because the mistake would recur.
func TestSessionsLeftByMistake(t *testing.T) {
	var n openSessions
	s, _ := soloSession(t, 1)
	n.use(s)
	s.Comm.Revoke(&collective.AbortError{Cause: "wrong", Mistake: true})
	if err := n.left(0); !errors.Is(err, ErrNoView) || !errors.Is(err, collective.ErrMistake) {
		t.Errorf("error %v", err)
	}
	n.close()
}

// Sessions that break one after another count until a step is committed.
func TestSessionsFailed(t *testing.T) {
	d := testDriver(t, 3, 0)
	n := openSessions{broke: 3}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	n.failed(done, d, View{Epoch: 1}, &collective.PeerError{Rank: 1})
	if n.broke != 4 {
		t.Errorf("%d sessions broke, want 4", n.broke)
	}
}
