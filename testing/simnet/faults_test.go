package simnet_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// env returns an envelope with the given sequence number.
func env(seq uint32) transport.Envelope { return transport.Envelope{Seq: seq} }

// A cut behaves as with TCP: silence in both directions and no error. After healing, all accepted
// messages arrive in order.
func TestBlackHole(t *testing.T) {
	inBubble(t, 2, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}, Window: 10_000}, func(t *testing.T, b *bench) {
		b.say(0, 1, "before")
		b.hears(1, "a up", "a says before")
		b.hears(0, "b up")
		b.Cut("a", "b")
		b.Cut("b", "a")
		b.say(0, 1, "during")
		b.say(0, 1, strings.Repeat("x", 9_000)) // fills the window
		blocked := begin(func() error { return b.ends[0].Network.Send(t.Context(), "b", make([]byte, 1000)) })
		b.silent(0)
		b.silent(1)
		if len(blocked) > 0 {
			t.Error("sent into the full window")
		}
		b.Heal()
		b.hears(1, "a says during")
		<-b.ends[1].Network.Events()
		<-b.ends[1].Network.Events()
		if err := <-blocked; err != nil {
			t.Error(err)
		}
		b.say(0, 1, "after")
		b.hears(1, "a says after")
		b.silent(0)
	})
}

// If a sender gives up a message because the window is full, half of the message may have been
// sent. The sender then gives up the connection. The next message opens a new connection when the
// cut is healed.
func TestGiveUpMessage(t *testing.T) {
	inBubble(t, 2, simnet.Config{Window: 10_000}, func(t *testing.T, b *bench) {
		b.say(0, 1, "before")
		b.hears(1, "a up", "a says before")
		b.hears(0, "b up")
		b.Cut("a", "b")
		b.say(0, 1, strings.Repeat("x", 9_990))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.ends[0].Network.Send(ctx, "b", make([]byte, 1000)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a send into the full window: %v", err)
		}
		<-b.ends[0].Network.Events() // PeerDown
		b.Heal()
		b.say(0, 1, "after")
		b.hears(0, "b up")
		for heard := ""; heard != "a says after"; {
			heard = text(<-b.ends[1].Network.Events())
		}
	})
}

// A new connection over a cut hangs until the cut is healed or ctx ends.
func TestDialOverCut(t *testing.T) {
	for _, dir := range [][2]elastic.ID{{"a", "b"}, {"b", "a"}} {
		inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
			b.Cut(dir[0], dir[1])
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := b.ends[0].Network.Send(ctx, "b", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("dial over a cut: %v", err)
			}
			if _, err := b.ends[0].Network.Request(ctx, "b", nil); err == nil {
				t.Error("request over a cut")
			}
			done := begin(func() error { return b.ends[0].Network.Send(t.Context(), "b", []byte("hello")) })
			synctest.Wait()
			b.Mend(dir[0], dir[1])
			if err := <-done; err != nil {
				t.Error(err)
			}
			for heard := ""; heard != "a says hello"; { // b may have seen attempts that a has given up
				heard = text(<-b.ends[1].Network.Events())
			}
		})
	}
}

func TestPartition(t *testing.T) {
	inBubble(t, 5, simnet.Config{}, func(t *testing.T, b *bench) {
		reaches := func(from, to int) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := b.ends[from].Network.Request(ctx, b.ends[to].Self.ID, nil)
			return err == nil && r.Close() == nil
		}
		for _, e := range b.ends {
			e.Network.Serve(func(context.Context, elastic.ID, []byte, io.Writer) error { return nil })
		}
		groups := [][]elastic.ID{{"a", "b"}, {"c"}} // d and e form another group
		group := []int{0, 0, 1, 2, 2}
		b.Partition(groups...)
		for from := range b.ends {
			for to := range b.ends {
				if from != to && reaches(from, to) != (group[from] == group[to]) {
					t.Errorf("%d reaches %d: %t", from, to, group[from] != group[to])
				}
			}
		}
		b.Partition([]elastic.ID{"a"})
		if reaches(0, 1) {
			t.Error("a new partition does not replace the old one")
		}
		b.Heal()
		for from := range b.ends {
			for to := range b.ends {
				if from != to && !reaches(from, to) {
					t.Errorf("%d does not reach %d after healing", from, to)
				}
			}
		}
	})
}

// A fault on one plane does not affect the other planes.
func TestPlanes(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.Cut(simnet.Any, simnet.Any, simnet.Data)
		b.say(0, 1, "hello")
		b.hears(1, "a up", "a says hello")
		if err := ts[0].Send(t.Context(), 1, env(1), []byte("x")); err != nil {
			t.Error(err)
		}
		got := begin(func() error { return ts[1].Recv(t.Context(), 0, env(1), make([]byte, 1)) })
		synctest.Wait()
		if len(got) > 0 {
			t.Error("data came over a cut")
		}
		b.Mend(simnet.Any, simnet.Any)
		if err := <-got; err != nil {
			t.Error(err)
		}
		closeAll(t, ts)
	})
}

// A stopped member does not read, answer or send. When it continues, it receives everything.
func TestStop(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		b.say(0, 1, "before")
		b.hears(1, "a up", "a says before")
		b.hears(0, "b up")
		b.Stop("b")
		b.say(0, 1, "one")
		b.say(0, 1, "two")
		sent := begin(func() error { return b.ends[1].Network.Send(t.Context(), "a", []byte("three")) })
		pass(time.Hour)
		b.silent(0)
		b.silent(1)
		b.Continue("b")
		b.hears(1, "a says one", "a says two")
		b.hears(0, "b says three")
		if err := <-sent; err != nil {
			t.Error(err)
		}
		b.Stop("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.ends[1].Network.Send(ctx, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sent while stopped: %v", err)
		}
		b.Kill("b")
		b.hears(0, "b down: connection lost: stream reset")
	})
}

// The other members are notified of a kill after ResetDelay and the delay of the link, or when the
// cut is healed. Dials to the dead member are refused.
func TestKill(t *testing.T) {
	inBubble(t, 3, simnet.Config{Link: simnet.Link{Delay: 10 * time.Millisecond}, ResetDelay: 5 * time.Millisecond}, func(t *testing.T, b *bench) {
		for from := range 2 {
			b.say(from, 2, "hello")
			b.hears(from, "c up")
		}
		b.Cut("c", "a")
		start := time.Now()
		b.Kill("c")
		b.hears(1, "c down: connection lost: stream reset")
		if d := time.Since(start); d != 15*time.Millisecond {
			t.Errorf("seen after %v", d)
		}
		pass(time.Hour)
		b.silent(0)
		start = time.Now()
		if err := b.ends[1].Network.Send(t.Context(), "c", nil); err == nil || time.Since(start) != 20*time.Millisecond {
			t.Errorf("refused after %v: %v", time.Since(start), err)
		}
		if _, err := b.ends[1].Network.Request(t.Context(), "c", nil); err == nil {
			t.Error("asked the dead")
		}
		b.Heal()
		b.hears(0, "c down: connection lost: stream reset")
		<-b.Gone("c")
		if b.Gone("nobody") != nil {
			t.Error("nobody is gone")
		}
	})
}

// Both sides of a broken connection get an event, and connect again.
func TestReset(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.say(0, 1, "before")
		b.hears(1, "a up", "a says before")
		b.hears(0, "b up")
		b.Reset("a", "b")
		b.hears(0, "b down: connection lost: stream reset")
		b.hears(1, "a down: connection lost: stream reset")
		for rank, e := range ts {
			wantLost(t, e.Recv(t.Context(), 1-rank, env(1), nil), 1-rank)
		}
		closeAll(t, ts)
		b.say(1, 0, "after")
		b.hears(0, "b up", "b says after")
		b.hears(1, "a up")
		b.view.Epoch++
		closeAll(t, b.connect())
		b.Reset("a", "nobody")
	})
}

// After healing, a stream resumes within Backoff.
func TestBackoff(t *testing.T) {
	inBubble(t, 2, simnet.Config{Seed: 3, Backoff: time.Second}, func(t *testing.T, b *bench) {
		b.say(0, 1, "before")
		b.hears(1, "a up", "a says before")
		b.Cut("a", "b")
		b.say(0, 1, "during")
		pass(time.Minute)
		start := time.Now()
		b.Heal()
		b.hears(1, "a says during")
		if d := time.Since(start); d == 0 || d >= time.Second {
			t.Errorf("after %v", d)
		}
	})
}
