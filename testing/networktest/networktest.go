// Package networktest checks that an implementation of elastic.Network keeps its contract when
// views follow each other. Members enter a view, revoke it, close it and enter the next one, in
// every order. No message of one view may arrive in another. Each implementation has a test that
// calls Run:
//
//	func TestViews(t *testing.T) {
//		networktest.Run(t, func(t *testing.T, n int) []elastic.Endpoint {
//			...
//		}, networktest.Options{Kill: func(e elastic.Endpoint) { ... }})
//	}
//
// Package transporttest checks the data plane of one view.
package networktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// Options has the features that a network supports.
type Options struct {
	// Kill ends one endpoint, as the death of its process does. If Kill is nil, there are no tests
	// of deaths. Use nil for networks in which the other endpoints do not notice a death.
	Kill func(elastic.Endpoint)
	// Break ends the streams of views between two endpoints, but no other stream between them. If
	// Break is nil, there are no tests of broken streams.
	Break func(a, b elastic.Endpoint)
	// Bubble runs each subtest in a synctest bubble. A network that blocks goroutines in real I/O cannot use it.
	Bubble bool
	// Parallel runs subtests in parallel, because they mostly wait. The functions in the options
	// and the argument make of Run must be safe for this.
	Parallel bool
	// Views is the number of views in the longest subtest; 0 means 30.
	Views int
}

// hang is how long a subtest may take, even on a loaded machine.
const hang = 10 * time.Minute

// check is one subtest. The error of run says how the network violates the contract.
type check struct {
	name  string
	ranks int
	run   func(*group) error
}

// Run tests a network. make returns n endpoints of one job that are in no view; their Self has
// their addresses. make registers the release of other resources with t.Cleanup. No goroutine may
// remain after the cleanup.
func Run(t *testing.T, make func(t *testing.T, n int) []elastic.Endpoint, o Options) {
	if o.Views == 0 {
		o.Views = 30
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after the last subtest
	// Parallel subtests begin only when this subtest has ended, which counts the goroutines of the
	// process.
	many := check{"many views", 3, func(g *group) error { return manyViews(g, o.Views) }}
	t.Run(many.name, func(t *testing.T) { bubbled(t, many, make, o) })
	for _, c := range checks(o) {
		t.Run(c.name, func(t *testing.T) {
			if o.Parallel {
				t.Parallel()
			}
			bubbled(t, c, make, o)
		})
	}
}

// bubbled runs c, in a bubble if o says so.
func bubbled(t *testing.T, c check, make func(t *testing.T, n int) []elastic.Endpoint, o Options) {
	if o.Bubble {
		synctest.Test(t, func(t *testing.T) { runOne(t, c, make, o) })
		return
	}
	runOne(t, c, make, o)
}

// runOne runs c. Meanwhile it reads the events of all endpoints, as members do.
func runOne(t *testing.T, c check, make func(t *testing.T, n int) []elastic.Endpoint, o Options) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	var readers sync.WaitGroup
	t.Cleanup(readers.Wait)
	g := &group{ctx: ctx, ends: make(t, c.ranks), kill: o.Kill, cut: o.Break, atOnce: 8 * time.Second}
	if o.Bubble { // in a bubble the load of the machine does not matter
		g.atOnce = 100 * time.Millisecond
	}
	for _, e := range g.ends {
		events, m := e.Network.Events(), newMail()
		readers.Go(func() { m.read(events) })
		g.mail = append(g.mail, m)
		g.members = append(g.members, e.Self)
	}
	if err := c.run(g); err != nil {
		t.Error(err)
	}
}

// group has the endpoints of a check.
type group struct {
	ctx     context.Context // ends if the check hangs
	ends    []elastic.Endpoint
	members []elastic.Member // members of ends
	mail    []*mail          // received messages of ends
	kill    func(elastic.Endpoint)
	cut     func(a, b elastic.Endpoint)
	atOnce  time.Duration // time limit for operations that need not wait for another rank
	last    elastic.View
}

// soon returns an error if an operation that need not wait for another rank has taken longer than
// atOnce.
func (g *group) soon(what string, began time.Time) error {
	if d := time.Since(began); d > g.atOnce {
		return fmt.Errorf("%s after %v, want at most %v", what, d, g.atOnce)
	}
	return nil
}

// next returns a new view. order lists the indices of the endpoints by rank. If order is empty,
// rank i is endpoint i.
func (g *group) next(order ...int) elastic.View {
	v := elastic.View{Epoch: g.last.Epoch + 1}
	if g.last.Epoch > 0 {
		v.Parent = g.last.Hash()
	}
	if len(order) == 0 {
		for i := range g.ends {
			order = append(order, i)
		}
	}
	for _, i := range order {
		v.Members = append(v.Members, g.members[i])
		v.Voters = append(v.Voters, g.members[i].ID)
	}
	g.last = v
	return v
}

// end returns the endpoint that has a rank in v.
func (g *group) end(v elastic.View, rank int) elastic.Endpoint {
	i := slices.IndexFunc(g.members, func(m elastic.Member) bool { return m.ID == v.Members[rank].ID })
	return g.ends[i]
}

// connect lets a rank enter v.
func (g *group) connect(ctx context.Context, v elastic.View, rank int) (transport.Transport, error) {
	t, err := g.end(v, rank).Network.Connect(ctx, v, rank)
	if err != nil {
		return nil, fmt.Errorf("rank %d enters view %d: %w", rank, v.Epoch, err)
	}
	return t, nil
}

// enter lets all ranks enter v at the same time.
func (g *group) enter(v elastic.View) ([]transport.Transport, error) {
	ts := make([]transport.Transport, len(v.Members))
	err := each(len(ts), func(rank int) (err error) {
		ts[rank], err = g.connect(g.ctx, v, rank)
		return err
	})
	if err != nil {
		closeAll(ts)
		return nil, err
	}
	return ts, nil
}

// each calls f for every rank at the same time, and joins the errors.
func each(ranks int, f func(rank int) error) error {
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() { errs[rank] = f(rank) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// closeAll closes transports at the same time, as ranks do. Transports may be nil.
func closeAll(ts []transport.Transport) error {
	return each(len(ts), func(rank int) error {
		if ts[rank] == nil {
			return nil
		}
		return ts[rank].Close()
	})
}

// works sends a message from each rank to each other rank, and checks the received messages.
func (g *group) works(v elastic.View, ts []transport.Transport) error {
	n := len(ts)
	return each(n, func(rank int) error {
		for i := 1; i < n; i++ {
			to := (rank + i) % n
			if err := ts[rank].Send(g.ctx, to, envelope(1), payload(v, rank, to)); err != nil {
				return fmt.Errorf("view %d: send from %d to %d: %w", v.Epoch, rank, to, err)
			}
		}
		for i := 1; i < n; i++ {
			from := (rank + i) % n
			want := payload(v, from, rank)
			got := make([]byte, len(want))
			if err := ts[rank].Recv(g.ctx, from, envelope(1), got); err != nil {
				return fmt.Errorf("view %d: receive at %d from %d: %w", v.Epoch, rank, from, err)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("view %d: rank %d received % x from %d, want % x", v.Epoch, rank, got, from, want)
			}
		}
		return nil
	})
}

// worksOnce enters v, checks that it works, and closes it.
func (g *group) worksOnce(v elastic.View) error {
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	return errors.Join(g.works(v, ts), closeAll(ts))
}

// payload returns a message that is different for each view, sender and receiver.
func payload(v elastic.View, from, to int) []byte {
	return []byte{byte(v.Epoch), byte(v.Epoch >> 8), byte(from), byte(to)}
}

// envelope returns an envelope with the given sequence number.
func envelope(seq uint32) transport.Envelope {
	return transport.Envelope{Comm: 3, Seq: seq, Call: transport.Call{Kind: transport.KindPoint, Root: -1, Count: 5}}
}
