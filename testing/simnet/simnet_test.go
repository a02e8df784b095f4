package simnet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/testing/transporttest"
)

func TestMain(m *testing.M) {
	flag.Int("many", 24, "members of the group of TestManyMembers")
	flag.Int("seeds", 60, "random links and programs")
	goleak.VerifyTestMain(m)
}

// bench is a network under test, with members a, b, c, ... in the order of ranks.
type bench struct {
	*simnet.Network
	t    testing.TB
	view elastic.View
	ends []elastic.Endpoint
}

// newBench returns a network with n members. The end of the test closes it.
func newBench(t testing.TB, n int, c simnet.Config) *bench {
	b := &bench{Network: simnet.New(c), t: t, view: elastic.View{Epoch: 1}}
	for i := range n {
		m := elastic.Member{ID: elastic.ID(rune('a' + i)), Index: i}
		b.view.Members = append(b.view.Members, m)
		b.view.Voters = append(b.view.Voters, m.ID)
		b.ends = append(b.ends, b.Endpoint(m))
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// inBubble runs f in a synctest bubble with a network of n members.
func inBubble(t *testing.T, n int, c simnet.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, n, c)) })
}

// pass waits for a duration of virtual time.
func pass(d time.Duration) { <-time.After(d) }

// begin runs f in a goroutine, and returns a channel for the result.
func begin[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// result is the result of Connect.
type result struct {
	t   transport.Transport
	err error
}

// connecting starts Connect at the given ranks, and returns channels for the results.
func (b *bench) connecting(ctx context.Context, v elastic.View, ranks ...int) []<-chan result {
	var out []<-chan result
	for _, rank := range ranks {
		id := v.Members[rank].ID
		out = append(out, begin(func() result {
			t, err := b.Endpoint(elastic.Member{ID: id}).Network.Connect(ctx, v, rank)
			return result{t, err}
		}))
	}
	return out
}

// connect connects all members, and returns their transports.
func (b *bench) connect() []transport.Transport {
	b.t.Helper()
	var ranks []int
	for rank := range b.view.Members {
		ranks = append(ranks, rank)
	}
	var ts []transport.Transport
	for _, c := range b.connecting(b.t.Context(), b.view, ranks...) {
		r := <-c
		if r.err != nil {
			b.t.Fatal(r.err)
		}
		ts = append(ts, r.t)
	}
	return ts
}

// closeAll closes the transports at the same time.
func closeAll(t testing.TB, ts []transport.Transport) {
	t.Helper()
	var done []<-chan error
	for _, e := range ts {
		done = append(done, begin(e.Close))
	}
	for _, d := range done {
		if err := <-d; err != nil {
			t.Error(err)
		}
	}
}

// wantLost checks that err is a *PeerError for the given rank.
func wantLost(t testing.TB, err error, rank int) {
	t.Helper()
	var lost *transport.PeerError
	if !errors.As(err, &lost) || lost.Rank != rank {
		t.Errorf("got %v, want the loss of rank %d", err, rank)
	}
}

// text returns an event as text.
func text(e elastic.PeerEvent) string {
	switch e.Kind {
	case elastic.PeerMessage:
		return fmt.Sprintf("%s says %s", e.Peer, e.Data)
	case elastic.PeerUp:
		return fmt.Sprintf("%s up", e.Peer)
	case elastic.PeerDown:
		return fmt.Sprintf("%s down: %v", e.Peer, e.Err)
	}
	return "end"
}

// hears checks that a member receives these events in this order.
func (b *bench) hears(at int, want ...string) {
	b.t.Helper()
	var got []string
	for range want {
		got = append(got, text(<-b.ends[at].Network.Events()))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s saw %q, want %q", b.ends[at].Self.ID, got, want)
	}
}

// silent checks that a member receives no event now.
func (b *bench) silent(at int) {
	b.t.Helper()
	synctest.Wait()
	select {
	case e := <-b.ends[at].Network.Events():
		b.t.Errorf("%s saw %q", b.ends[at].Self.ID, text(e))
	default:
	}
}

// say sends a control message.
func (b *bench) say(from, to int, words string) {
	b.t.Helper()
	if err := b.ends[from].Network.Send(b.t.Context(), b.ends[to].Self.ID, []byte(words)); err != nil {
		b.t.Error(err)
	}
}

func conformance(t *testing.T, c simnet.Config, bubble bool) {
	ids := make(map[transport.Transport]func())
	make := func(t *testing.T, n int) []transport.Transport {
		b := newBench(t, n, c)
		ts := b.connect()
		clear(ids)
		for rank, e := range ts {
			ids[e] = func() { b.Kill(b.view.Members[rank].ID) }
		}
		return ts
	}
	transporttest.Run(t, make, transporttest.Options{Bubble: bubble, Kill: func(e transport.Transport) { ids[e]() }})
}

func TestConformance(t *testing.T) { conformance(t, simnet.Config{}, false) }

// Delays, random lag and slow links do not change the contract of a transport.
func TestConformanceInBubble(t *testing.T) {
	for name, link := range map[string]simnet.Link{
		"no delay": {},
		"lag":      {Delay: time.Millisecond, Lag: 10 * time.Millisecond},
		"slow":     {Delay: time.Millisecond, Bandwidth: 50 << 20},
	} {
		t.Run(name, func(t *testing.T) { conformance(t, simnet.Config{Seed: 1, Link: link}, true) })
		t.Run(name+" on demand", func(t *testing.T) {
			conformance(t, simnet.Config{Seed: 1, Link: link, Plan: networktest.Chain}, true)
		})
	}
}
