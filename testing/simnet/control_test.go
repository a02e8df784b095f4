package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

func TestControl(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		b.say(0, 1, "one")
		b.say(0, 1, "two")
		b.hears(1, "a up", "a says one", "a says two")
		b.say(1, 0, "three")
		b.hears(0, "b up", "b says three")
		b.Kill("a")
		b.hears(1, "a down: connection lost: stream reset")
		b.hears(0, "end")
		b.say(2, 1, "four")
		b.hears(1, "c up", "c says four")
		if err := b.ends[2].Close(); err != nil {
			t.Error(err)
		}
		b.hears(1, "c down: EOF")
	})
}

func TestControlErrors(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		a := b.ends[0].Network
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Send(ended, "b", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}
		if err := a.Send(t.Context(), "b", make([]byte, elastic.MaxControl+1)); err == nil {
			t.Error("a message above the limit was sent")
		}
		if err := a.Send(t.Context(), "a", nil); err == nil {
			t.Error("sent to itself")
		}
		b.Kill("b")
		if err := b.ends[1].Network.Send(t.Context(), "a", nil); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("sent by the dead: %v", err)
		}
	})
}

// If two members dial each other at the same time, there is only one connection.
func TestCrossingDials(t *testing.T) {
	inBubble(t, 2, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}}, func(t *testing.T, b *bench) {
		done := begin(func() error { return b.ends[1].Network.Send(t.Context(), "a", []byte("b's")) })
		b.say(0, 1, "a's")
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.hears(0, "b up", "b says b's")
		b.hears(1, "a up", "a says a's")
		b.silent(0)
		b.silent(1)
	})
}

// A message takes the delay of its link. Before the first message, a dial takes one round trip.
func TestDelay(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		b.SetLink("a", "b", simnet.Link{Delay: 30 * time.Millisecond})
		b.SetLink("b", "a", simnet.Link{Delay: 5 * time.Millisecond})
		start := time.Now()
		b.say(0, 1, "hello")
		if d := time.Since(start); d != 35*time.Millisecond {
			t.Errorf("dialled in %v", d)
		}
		b.hears(1, "a up", "a says hello")
		if d := time.Since(start); d != 65*time.Millisecond {
			t.Errorf("received after %v", d)
		}
	})
}

// numbers sends 0..n-1 from a to b. It returns the numbers that b has received when the network is idle.
func (b *bench) numbers(n int) (got []int) {
	b.say(0, 1, "first")
	b.hears(1, "a up", "a says first")
	for i := range n {
		b.say(0, 1, fmt.Sprint(i))
	}
	end := time.After(time.Minute)
	for {
		select {
		case e := <-b.ends[1].Network.Events():
			var i int
			if _, err := fmt.Sscan(string(e.Data), &i); err != nil {
				b.t.Fatal(err)
			}
			got = append(got, i)
		case <-end:
			return got
		}
	}
}

// shuffled counts the numbers that arrive after a greater number, and the numbers that arrive
// again.
func shuffled(got []int) (late, again int) {
	seen, greatest := make(map[int]bool), -1
	for _, i := range got {
		switch {
		case seen[i]:
			again++
		case i < greatest:
			late++
		}
		seen[i] = true
		greatest = max(greatest, i)
	}
	return late, again
}

func TestLinkFaults(t *testing.T) {
	const n = 2000
	tests := map[string]struct {
		link              simnet.Link
		lost, late, again bool
	}{
		"none":      {simnet.Link{}, false, false, false},
		"lag":       {simnet.Link{Lag: 50 * time.Millisecond}, false, false, false},
		"loss":      {simnet.Link{Loss: 0.1}, true, false, false},
		"duplicate": {simnet.Link{Duplicate: 0.1}, false, false, true},
		"reorder":   {simnet.Link{Delay: time.Millisecond, Reorder: 0.1}, false, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, simnet.Config{Seed: 7}, func(t *testing.T, b *bench) {
				b.SetLink("a", "b", test.link, simnet.Control)
				got := b.numbers(n)
				late, again := shuffled(got)
				lost := n + 1 - len(got) + again
				lost-- // the message "first" does not count
				for what, c := range map[string]struct {
					count int
					want  bool
				}{"lost": {lost, test.lost}, "late": {late, test.late}, "again": {again, test.again}} {
					if c.want != (c.count > 0) || c.count > n/5 {
						t.Errorf("%d of %d %s", c.count, n, what)
					}
				}
			})
		})
	}
}

// The same seed gives the same faults, and another seed gives other faults.
func TestSeed(t *testing.T) {
	run := func(seed uint64) (out string) {
		inBubble(t, 2, simnet.Config{Seed: seed, Link: simnet.Link{Lag: time.Second, Loss: 0.3, Duplicate: 0.3, Reorder: 0.3}}, func(t *testing.T, b *bench) {
			for i := range 50 {
				b.say(0, 1, fmt.Sprint(i))
			}
			start := time.Now()
			end := time.After(time.Minute)
			for {
				select {
				case e := <-b.ends[1].Network.Events():
					out += fmt.Sprintf("%s at %v\n", text(e), time.Since(start))
				case <-end:
					return
				}
			}
		})
		return out
	}
	if a, b := run(1), run(1); a != b {
		t.Errorf("one seed, two runs:\n%s\n%s", a, b)
	}
	if run(1) == run(2) {
		t.Error("two seeds, one run")
	}
}

// A member that joins later receives the messages that were sent to it before.
func TestLateMember(t *testing.T) {
	inBubble(t, 1, simnet.Config{}, func(t *testing.T, b *bench) {
		done := begin(func() error { return b.ends[0].Network.Send(t.Context(), "z", []byte("hello")) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.ends[0].Network.Send(ctx, "y", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("to one that never comes: %v", err)
		}
		b.ends = append(b.ends, b.Endpoint(elastic.Member{ID: "z"}))
		b.hears(1, "a up", "a says hello")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, ok := <-b.Endpoint(elastic.Member{ID: "late"}).Network.Events(); ok {
			t.Error("a member of a closed network")
		}
	})
}
