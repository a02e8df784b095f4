package simnet_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// A revocation travels over the links like other messages, but overtakes queued ones.
func TestRevokeTravels(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.SetLink("a", simnet.Any, simnet.Link{Delay: time.Second, Bandwidth: 1000})
		b.Cut("a", "c")
		b.Cut("b", "c")
		if err := ts[0].Send(t.Context(), 1, env(1), make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		start := time.Now()
		ts[0].Revoke(errors.New("enough"))
		if err := ts[1].Recv(t.Context(), 0, env(1), nil); !errors.Is(err, transport.ErrRevoked) {
			t.Error(err)
		}
		if d := time.Since(start); d < time.Second || d > 20*time.Second {
			t.Errorf("arrived after %v", d)
		}
		waiting := begin(func() error { return ts[2].Recv(t.Context(), 0, env(2), nil) })
		pass(time.Hour)
		if len(waiting) > 0 {
			t.Error("a revocation came over a cut")
		}
		b.Heal()
		if err := <-waiting; !errors.Is(err, transport.ErrRevoked) {
			t.Error(err)
		}
		closeAll(t, ts)
	})
}

// The last messages of a dead member can be received before the error about its death.
func TestKillAfterSend(t *testing.T) {
	inBubble(t, 2, simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond, Lag: time.Second}}, func(t *testing.T, b *bench) {
		ts := b.connect()
		for seq := range uint32(20) {
			if err := ts[0].Send(t.Context(), 1, env(seq), []byte("x")); err != nil {
				t.Error(err)
			}
		}
		var got []<-chan error
		for seq := range uint32(20) {
			got = append(got, begin(func() error { return ts[1].Recv(t.Context(), 0, env(seq), make([]byte, 1)) }))
		}
		synctest.Wait()
		b.Kill("a")
		for seq, done := range got {
			if err := <-done; err != nil {
				t.Errorf("message %d: %v", seq, err)
			}
		}
		wantLost(t, ts[1].Recv(t.Context(), 0, env(20), nil), 0)
		if err := ts[0].Send(t.Context(), 1, env(21), nil); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("sent by the dead: %v", err)
		}
		closeAll(t, ts)
	})
}

// When the window is full because of a cut, Send blocks. It continues when the cut is healed.
func TestDataBlackHole(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.Cut("b", "a") // acknowledgements of b are lost
		sent := begin(func() error {
			for seq := range uint32(30) {
				if err := ts[0].Send(t.Context(), 1, env(seq), bytes.Repeat([]byte{byte(seq)}, 100<<10)); err != nil {
					return err
				}
			}
			return nil
		})
		for seq := range uint32(5) {
			if err := ts[1].Recv(t.Context(), 0, env(seq), make([]byte, 100<<10)); err != nil {
				t.Error(err)
			}
		}
		pass(time.Hour)
		if len(sent) > 0 {
			t.Error("no window")
		}
		b.Heal()
		for seq := uint32(5); seq < 30; seq++ {
			buf := make([]byte, 100<<10)
			if err := ts[1].Recv(t.Context(), 0, env(seq), buf); err != nil || buf[1] != byte(seq) {
				t.Errorf("message %d: %d, %v", seq, buf[1], err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		closeAll(t, ts)
	})
}

// Close does not wait for ever for a member that is stopped or cut off.
func TestCloseIsBounded(t *testing.T) {
	for name, act := range map[string]func(b *bench){
		"stopped": func(b *bench) { b.Stop("b") },
		"cut off": func(b *bench) { b.Partition([]elastic.ID{"a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
				ts := b.connect()
				act(b)
				start := time.Now()
				closeAll(t, ts[:1])
				if d := time.Since(start); d > 10*time.Second {
					t.Errorf("closed in %v", d)
				}
				b.Heal()
				b.Continue("b")
				wantLost(t, ts[1].Recv(t.Context(), 0, env(1), nil), 0)
				closeAll(t, ts[1:])
			})
		})
	}
}

// After Continue a stopped member sends and receives as before.
func TestStopInSession(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.Stop("b")
		if err := ts[0].Send(t.Context(), 1, env(1), []byte("x")); err != nil {
			t.Error(err)
		}
		got := begin(func() error { return ts[1].Recv(t.Context(), 0, env(1), make([]byte, 1)) })
		sent := begin(func() error { return ts[1].Send(t.Context(), 0, env(2), nil) })
		pass(time.Hour)
		if len(got) > 0 || len(sent) > 0 {
			t.Error("a stopped member works")
		}
		b.Continue("b")
		if err := errors.Join(<-got, <-sent, ts[0].Recv(t.Context(), 1, env(2), nil)); err != nil {
			t.Error(err)
		}
		closeAll(t, ts)
	})
}

// If a member is stopped, the end of ctx ends its Send, and revokes the session.
func TestStoppedSendIsBounded(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.Stop("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ts[1].Send(ctx, 0, env(1), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sent while stopped: %v", err)
		}
		waiting := begin(func() error { return ts[0].Recv(t.Context(), 1, env(1), nil) })
		synctest.Wait()
		if len(waiting) > 0 {
			t.Error("a stopped member revokes")
		}
		b.Continue("b")
		if err := <-waiting; !errors.Is(err, transport.ErrRevoked) {
			t.Error(err)
		}
		closeAll(t, ts)
	})
}

// A revocation also reaches ranks that are still in Connect.
func TestRevokedBeforeBegun(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		b.Cut("c", "b") // b and c are connected with a, whose Connect returns
		waiting := b.connecting(t.Context(), b.view, 0, 1, 2)
		first := <-waiting[0]
		if first.err != nil {
			t.Fatal(first.err)
		}
		first.t.Revoke(errors.New("enough"))
		synctest.Wait()
		b.Heal()
		ts := []transport.Transport{first.t}
		for _, w := range waiting[1:] {
			r := <-w
			if r.err == nil {
				ts = append(ts, r.t)
				r.err = r.t.Recv(t.Context(), 0, env(1), nil)
			}
			var abort *transport.AbortError
			if !errors.As(r.err, &abort) || abort.Cause != "enough" {
				t.Errorf("got %v", r.err)
			}
		}
		closeAll(t, ts)
	})
}

// If a rank gives up and connects again, the new attempt replaces the first attempt, unless another
// rank has already entered the view because of the first.
func TestConnectAgain(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		first := b.connecting(t.Context(), b.view, 0)[0]
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			wantLost(t, (<-b.connecting(ctx, b.view, 2)[0]).err, 1)
			cancel()
		}
		last := b.connecting(t.Context(), b.view, 2)[0]
		synctest.Wait()
		var ts []transport.Transport
		for _, w := range []<-chan result{first, b.connecting(t.Context(), b.view, 1)[0], last} {
			r := <-w
			if r.err != nil {
				t.Fatal(r.err)
			}
			ts = append(ts, r.t)
		}
		if made := b.train(ts, 3); made[0] != 3 {
			t.Errorf("made %v steps", made)
		}
	})
}

func TestConnectErrors(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i, c := range b.connecting(ctx, b.view, 0, 1) {
			r := <-c
			wantLost(t, r.err, 2)
			if !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("rank %d: %v", i, r.err)
			}
		}
		if _, err := b.ends[0].Network.Connect(t.Context(), b.view, 1); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("another's rank: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		first := b.connecting(ended, b.view, 0)[0]
		synctest.Wait()
		if _, err := b.ends[0].Network.Connect(t.Context(), b.view, 0); err == nil {
			t.Error("twice at a time")
		}
		end()
		var lost *transport.PeerError
		if r := <-first; !errors.Is(r.err, context.Canceled) || errors.As(r.err, &lost) {
			t.Errorf("cancelled: %v", r.err)
		}
		closeAll(t, b.connect()) // after failed attempts
		if _, err := b.ends[0].Network.Connect(t.Context(), b.view, 0); err == nil {
			t.Error("an epoch that is over")
		}
		alone := elastic.View{Epoch: 9, Members: b.view.Members[:1]}
		r := <-b.connecting(t.Context(), alone, 0)[0]
		if r.err != nil {
			t.Fatal(r.err)
		}
		closeAll(t, []transport.Transport{r.t})
	})
}

// The death of a member ends every Connect that waits for it, whatever its rank. A Connect that begins later fails too.
func TestDeathDuringConnect(t *testing.T) {
	for dead := range 3 {
		inBubble(t, 3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}}, func(t *testing.T, b *bench) {
			ranks := []int{(dead + 1) % 3, (dead + 2) % 3}
			waiting := b.connecting(t.Context(), b.view, ranks...)
			synctest.Wait()
			b.Kill(b.view.Members[dead].ID)
			for _, w := range waiting {
				wantLost(t, (<-w).err, dead)
			}
			b.view.Epoch++
			for _, w := range b.connecting(t.Context(), b.view, ranks...) {
				wantLost(t, (<-w).err, dead)
			}
			if r := <-b.connecting(t.Context(), b.view, dead)[0]; !errors.Is(r.err, transport.ErrClosed) {
				t.Errorf("the dead connects: %v", r.err)
			}
		})
	}
}

// Connect over a cut waits until the cut is healed.
func TestConnectOverCut(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		b.Cut("a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waiting := b.connecting(ctx, b.view, 0, 1)
		pass(time.Hour - time.Second)
		if len(waiting[1]) > 0 {
			t.Error("connected over a cut")
		}
		b.Heal()
		var ts []transport.Transport
		for _, w := range waiting {
			r := <-w
			if r.err != nil {
				t.Fatal(r.err)
			}
			ts = append(ts, r.t)
		}
		closeAll(t, ts)
	})
}

// A rank gives up Connect after another rank has entered the view. The other ranks get the loss of
// this rank.
func TestGiveUp(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		b.Cut("c", "a") // the hello of c does not reach a
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		last := b.connecting(ctx, b.view, 2)[0]
		rest := b.connecting(t.Context(), b.view, 0, 1)
		wantLost(t, (<-last).err, 0)
		r := <-rest[1] // b is connected with both
		if r.err != nil {
			t.Fatal(r.err)
		}
		wantLost(t, r.t.Recv(t.Context(), 2, env(1), nil), 2)
		closeAll(t, []transport.Transport{r.t})
		b.Kill("c")
		b.Heal()
		wantLost(t, (<-rest[0]).err, 2)
	})
}

// If lower ranks skip a view, the Connect of a rank that waits in this view fails.
func TestSkippedView(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		waiting := b.connecting(t.Context(), b.view, 2)[0]
		synctest.Wait()
		next := elastic.View{Epoch: 2, Members: b.view.Members[:2]}
		for _, w := range b.connecting(t.Context(), next, 0, 1) {
			r := <-w
			if r.err != nil {
				t.Fatal(r.err)
			}
			defer closeAll(t, []transport.Transport{r.t})
		}
		if r := <-waiting; !errors.Is(r.err, transport.ErrRevoked) {
			t.Errorf("got %v", r.err)
		}
		if r := <-b.connecting(t.Context(), b.view, 2)[0]; !errors.Is(r.err, transport.ErrRevoked) {
			t.Errorf("and again: %v", r.err)
		}
	})
}
