package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/event"
	"github.com/elrun/elrun/internal/transport/mem"
	"github.com/elrun/elrun/testing/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is a sink that keeps all events.
type record struct {
	mu  sync.Mutex
	all []event.Event
}

func (r *record) Emit(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

// of returns the events of a name.
func (r *record) of(name string) []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []event.Event
	for _, e := range r.all {
		if e.Body.Name() == name {
			some = append(some, e)
		}
	}
	return some
}

// patience bounds what may not hang, in virtual time.
const patience = time.Minute

// peers are the members of a group and where they meet.
type peers struct {
	network *mem.Network
	sink    *record
	members []elastic.Member
}

func newPeers(n int) *peers {
	p := &peers{network: mem.NewNetwork(), sink: new(record)}
	for i := range n {
		p.members = append(p.members, elastic.Member{ID: elastic.ID(fmt.Sprintf("peer-of-rank-%d", i)), Index: i})
	}
	return p
}

// config is what member i is told by a launcher that names the given first view.
func (p *peers) config(i int, first []elastic.Member) elastic.Config {
	m := p.network.Control(p.members[i].ID)
	return elastic.Config{Self: p.members[i], Peers: first, Control: m, Connector: m, Sink: p.sink, Closers: []io.Closer{m}}
}

// each calls f for every member at the same time and returns the errors.
func (p *peers) each(t *testing.T, f func(ctx context.Context, i int) error) []error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make([]error, len(p.members))
	var all sync.WaitGroup
	for i := range p.members {
		all.Go(func() { errs[i] = f(ctx, i) })
	}
	all.Wait()
	if err := p.network.Close(); err != nil {
		t.Error(err)
	}
	return errs
}

// joined is each with members that have joined; they leave when f has returned.
func (p *peers) joined(t *testing.T, f func(ctx context.Context, g *elastic.Group, s *elastic.Session) error) []error {
	return p.each(t, func(ctx context.Context, i int) error {
		g, err := elastic.Join(ctx, p.config(i, p.members))
		if err != nil {
			return err
		}
		s, err := g.Next(ctx, 0)
		if err == nil {
			err = f(ctx, g, s)
		}
		return errors.Join(err, g.Close(), g.Close())
	})
}

// All members get one view, in the launcher's order, and a communicator that works.
func TestJoin(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(n)
			errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
				if s.View.Epoch != 1 || s.Rank != g.Self().Index || s.Comm.Size() != n || len(s.View.Voters) != n {
					return fmt.Errorf("session %+v of %v", s, g.Self())
				}
				all := make([]int64, n)
				if err := collective.AllGather(ctx, s.Comm, all, []int64{int64(s.Rank)}); err != nil {
					return err
				}
				if again, err := g.Next(ctx, 0); again != s || err != nil {
					return fmt.Errorf("the session again: %v, %w", again, err)
				}
				_, err := g.Next(ctx, 1)
				return want(err, elastic.ErrNoView)
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
			views := p.sink.of("view")
			if len(views) != n || len(p.sink.all) != n {
				t.Errorf("n=%d: events %v", n, p.sink.all)
			}
			for _, e := range views {
				v := e.Body.(event.View)
				if e.Epoch != 1 || v.Reason != "start" || len(v.Members) != n || v.Members[n-1] != p.members[n-1].ID.Short() || !slices.Equal(v.Members, v.Voters) {
					t.Errorf("n=%d: %+v", n, e)
				}
			}
		})
	}
}

// want returns nil if err is target, and otherwise an error that says so.
func want(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return fmt.Errorf("got %v, want %v", err, target)
}

// Members that were told different first views all end with an error, and soon.
func TestJoinDisagreement(t *testing.T) {
	swapped := func(m []elastic.Member) []elastic.Member { return append([]elastic.Member{m[1], m[0]}, m[2:]...) }
	fewer := func(m []elastic.Member) []elastic.Member { return m[1:] }
	more := func(m []elastic.Member) []elastic.Member {
		return append(slices.Clone(m), elastic.Member{ID: "stranger"})
	}
	for name, told := range map[string]func([]elastic.Member) []elastic.Member{"order": swapped, "fewer": fewer, "more": more} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers(4)
				errs := p.each(t, func(ctx context.Context, i int) error {
					first := p.members
					if i == 2 {
						first = told(first)
					}
					g, err := elastic.Join(ctx, p.config(i, first))
					if err == nil {
						err = errors.Join(errors.New("joined"), g.Close())
						t.Error(err)
					}
					return err
				})
				if name == "order" && errors.Is(errors.Join(errs...), context.DeadlineExceeded) {
					t.Errorf("waited in vain: %v", errs) // all know all others, and must hear of it
				}
				if len(p.sink.all) > 0 || slices.Contains(errs, nil) {
					t.Errorf("%v, events %v", errs, p.sink.all)
				}
			})
		})
	}
}

// A member that does not come is waited for until the context ends.
func TestJoinWithoutMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.each(t, func(ctx context.Context, i int) error {
			if i == 1 {
				return nil
			}
			_, err := elastic.Join(ctx, p.config(i, p.members))
			return want(err, context.DeadlineExceeded)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that sends something else than a proposal is named.
func TestJoinGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		errs := p.each(t, func(ctx context.Context, i int) error {
			if i == 1 {
				return p.network.Control(p.members[1].ID).Send(ctx, p.members[0].ID, []byte("hello"))
			}
			_, err := elastic.Join(ctx, p.config(i, p.members))
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// First views that cannot be.
func TestJoinArguments(t *testing.T) {
	p := newPeers(2)
	a, b := p.members[0], p.members[1]
	for name, first := range map[string][]elastic.Member{
		"none": nil, "without self": {b}, "twice": {a, b, a}, "without ID": {a, {}},
	} {
		if g, err := elastic.Join(t.Context(), p.config(0, first)); err == nil {
			t.Errorf("%s: %v", name, errors.Join(errors.New("joined"), g.Close()))
		}
	}
	if err := p.network.Close(); err != nil {
		t.Error(err)
	}
}

// The death of a member ends the calls of all others with an error that names it; Next
// says that there is no further view, and each survivor's log has one line about it.
func TestLost(t *testing.T) {
	for dead := range 4 {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(4)
			errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
				if s.Rank == dead {
					synctest.Wait() // until the others are in their calls
					p.network.Kill(g.Self().ID)
					return want(collective.Barrier(ctx, s.Comm), collective.ErrRevoked)
				}
				var lost *collective.PeerError
				err := collective.Barrier(ctx, s.Comm)
				if !errors.As(err, &lost) || lost.Rank != dead {
					return fmt.Errorf("barrier: %v", err)
				}
				for range 2 {
					_, err = g.Next(ctx, s.View.Epoch)
					if !errors.As(err, &lost) || lost.Rank != dead || !errors.Is(err, elastic.ErrNoView) {
						return fmt.Errorf("next: %v", err)
					}
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			checkLost(t, p, dead, "reset")
		})
	}
}

// checkLost wants one event about the dead member from each survivor.
func checkLost(t *testing.T, p *peers, dead int, cause string) {
	t.Helper()
	by := make(map[int]int)
	for _, e := range p.sink.of("lost") {
		by[e.Index]++
		if l := e.Body.(event.Lost); l.Who != p.members[dead].ID.Short() || l.Cause != cause || e.Epoch != 1 {
			t.Errorf("got %+v", e)
		}
	}
	for i := range p.members {
		if i != dead && by[i] != 1 {
			t.Errorf("%d events of rank %d", by[i], i)
		}
	}
}

// A member that leaves while others want something of it is an exit.
func TestLeftEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			if s.Rank == 1 {
				synctest.Wait()
				return g.Close()
			}
			return want(collective.Barrier(ctx, s.Comm), collective.ErrPeer)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		checkLost(t, p, 1, "exit")
	})
}

// Next heeds its context.
func TestNextCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := newPeers(1).joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := g.Next(ctx, 0)
			return want(err, context.Canceled)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// A stall of the communicator is in the log with the IDs of those who hold it up.
func TestStallEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			if s.Rank == 2 {
				<-time.After(3 * time.Second)
			}
			return collective.Barrier(ctx, s.Comm)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		all := p.sink.of("stall")
		if len(all) != 2 {
			t.Fatalf("got %v", all)
		}
		for _, e := range all {
			s := e.Body.(event.Stall)
			if s.Culprit != p.members[2].ID.Short() || s.Phase != "not in the call" || s.What != "barrier by recursive-doubling" || s.SinceMS < 2000 {
				t.Errorf("got %+v", s)
			}
		}
	})
}

// RunGroups is the same for users' tests.
func TestRunGroups(t *testing.T) {
	sink := new(record)
	cluster.RunGroups(t, 3, sink, func(ctx context.Context, g *elastic.Group) error {
		s, err := g.Next(ctx, 0)
		if err != nil {
			return err
		}
		return collective.Barrier(ctx, s.Comm)
	})
	if len(sink.of("view")) != 3 {
		t.Errorf("got %v", sink.all)
	}
}
