package mailbox

import (
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective/transport"
)

// sleepers starts n readers that wait for room. It returns a channel for the results of WaitRoom.
func sleepers(b *Box, from, n int, stop <-chan struct{}) chan error {
	out := make(chan error, n)
	for range n {
		go func() { out <- b.WaitRoom(from, stop, nil) }()
	}
	synctest.Wait()
	return out
}

// full returns a box that holds more bytes of rank 1 than its limit.
func full(t *testing.T) *Box {
	b := newBox()
	for range 5 {
		if err := b.WaitRoom(1, nil, nil); err != nil {
			t.Fatal(err)
		}
		arrive(t, b, 1, env(1), string(make([]byte, limit-5*overhead/4)))
		if s := &b.sources[1]; s.heldBytes > limit {
			return b
		}
	}
	t.Fatal("never full")
	return nil
}

func TestRoom(t *testing.T) {
	size := limit - 5*overhead/4
	tests := map[string]struct {
		act  func(t *testing.T, b *Box, stop chan struct{})
		want bool // the readers continue
	}{
		"nothing happens": {func(*testing.T, *Box, chan struct{}) {}, false},
		"a message is received": {func(t *testing.T, b *Box, _ chan struct{}) {
			if err := b.Recv(t.Context(), 1, env(1), make([]byte, size)); err != nil {
				t.Error(err)
			}
		}, true},
		"a receive waits": {func(t *testing.T, b *Box, _ chan struct{}) {
			recv(t.Context(), b, 1, env(2), 0)
		}, true},
		"a receive waits for another rank": {func(t *testing.T, b *Box, _ chan struct{}) {
			recv(t.Context(), b, 2, env(2), 0)
		}, false},
		"the limit is lifted": {func(_ *testing.T, b *Box, _ chan struct{}) { b.LiftLimit(1) }, true},
		"the readers stop":    {func(_ *testing.T, _ *Box, stop chan struct{}) { close(stop) }, true},
		"the box fails":       {func(_ *testing.T, b *Box, _ chan struct{}) { b.Fail(transport.ErrClosed) }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := full(t)
				stop := make(chan struct{})
				out := sleepers(b, 1, 3, stop)
				if len(out) > 0 {
					t.Error("no pause above the limit")
				}
				test.act(t, b, stop)
				synctest.Wait()
				if got := len(out) == cap(out); got != test.want {
					t.Errorf("%d of %d readers went on", len(out), cap(out))
				}
				b.Fail(transport.ErrClosed)
				synctest.Wait()
				if n := b.sources[1].sleepers; n != 0 {
					t.Errorf("%d sleepers left", n)
				}
			})
		})
	}
}

// A message for which there is no receive must not delay a message for which there is one (head-of-line blocking).
func TestUnaskedMessageBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := full(t)
		go func() {
			for range 10 {
				if b.WaitRoom(1, nil, nil) != nil {
					return
				}
				arrive(t, b, 1, env(1), "again unasked for")
			}
			arrive(t, b, 1, env(2), "asked for")
		}()
		synctest.Wait()
		p := recv(t.Context(), b, 1, env(2), 9)
		wantText(t, p, "asked for")
		b.Fail(transport.ErrClosed)
	})
}

func TestMessagesToSelfAreUnlimited(t *testing.T) {
	b := newBox()
	for range 10 {
		if err := b.WaitRoom(0, nil, nil); err != nil {
			t.Fatal(err)
		}
		arrive(t, b, 0, env(1), string(make([]byte, limit)))
	}
}

// Empty messages count too, because they use memory.
func TestEmptyMessagesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		for range limit/overhead + 1 {
			arrive(t, b, 1, env(1), "")
		}
		if out := sleepers(b, 1, 1, nil); len(out) > 0 {
			t.Error("no pause")
		}
		b.Fail(transport.ErrClosed)
	})
}
