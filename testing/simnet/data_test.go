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

// Revocations travel over the links as everything else, and past what is queued.
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

// What a member sent before its death comes before the news of that.
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

// Send blocks when a black hole has taken in the window, and goes on after healing.
func TestDataBlackHole(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ts := b.connect()
		b.Cut("b", "a") // news of reading do not come back
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

// Close does not wait for ever for one that is stopped, or cut off.
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

// A member that is stopped takes part again after Continue, as if nothing had been.
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

// The end of ctx ends the Send of a stopped member, and the session.
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

// A revocation finds a rank that is still connecting, at the latest when it begins.
func TestRevokedBeforeBegun(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		b.Cut("c", "b") // both reach a, which begins without waiting for them
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

// A rank that gives up and comes again takes the place of its first attempt, as long as
// nobody has begun with that.
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
		closeAll(t, b.connect()) // after attempts that failed
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

// The death of a member ends the Connects that wait for it, whatever its rank, also those
// that begin later.
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

// A connect over a cut hangs until it heals.
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

// A rank that gives up has let others begin; they learn that it is not there.
func TestGiveUp(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		b.Cut("c", "a") // c cannot say hello to a
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		last := b.connecting(ctx, b.view, 2)[0]
		rest := b.connecting(t.Context(), b.view, 0, 1)
		wantLost(t, (<-last).err, 0)
		r := <-rest[1] // b has met both
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

// Who waits in a view that a lower rank skips is refused in the end.
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
