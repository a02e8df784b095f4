package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// All members get the same view, in the launcher's order, and a working communicator.
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
				if again, err := g.Sessions().Next(ctx, 0); again != s || err != nil {
					return fmt.Errorf("the session again: %v, %w", again, err)
				}
				return collective.Barrier(ctx, s.Comm)
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
			views := p.sink.of("view")
			for _, e := range views {
				if e.Epoch != 1 {
					continue // the members leave one after the other
				}
				v := e.Body.(event.View)
				if e.Epoch != 1 || v.Reason != "start" || len(v.Members) != n || v.Members[n-1] != p.members[n-1].ID.Short() || !slices.Equal(v.Members, v.Voters) {
					t.Errorf("n=%d: %+v", n, e)
				}
			}
		})
	}
}

// A member that was given another first view than the others soon ends with an error that says so.
// The others may go on without it.
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
						err = g.Close()
					}
					return err
				})
				if errs[2] == nil || !strings.Contains(errs[2].Error(), "has another first view") {
					t.Errorf("the one that was told otherwise: %v", errs[2])
				}
				if errors.Is(errors.Join(errs...), context.DeadlineExceeded) {
					t.Errorf("waited in vain: %v", errs)
				}
			})
		})
	}
}

// The others go on without a member that does not start, and log the loss.
func TestJoinWithoutMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.each(t, func(ctx context.Context, i int) error {
			if i == 1 {
				return nil
			}
			g, err := elastic.Join(ctx, p.config(i, p.members))
			if err != nil {
				return err
			}
			s, err := g.Sessions().Next(ctx, 0)
			if err == nil && (s.Comm.Size() != 2 || s.View.Epoch != 2) {
				err = fmt.Errorf("session %+v", s.View)
			}
			if err == nil {
				err = collective.Barrier(ctx, s.Comm)
			}
			return errors.Join(err, g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if lost := p.sink.of("lost"); len(lost) != 2 || lost[0].Body.(event.Lost).Cause != "silent" {
			t.Errorf("events %v", lost)
		}
	})
}

// If the launcher reports a death before the first view is agreed, the other one of two members
// goes on alone.
func TestDeadBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		p.adjust = func(_ int, cfg *elastic.Config) {
			cfg.Sole = true
			cfg.Started = func(g *elastic.Group) { g.Admin().Dead(p.members[1].ID) }
		}
		errs := p.each(t, func(ctx context.Context, i int) error {
			if i == 1 {
				return nil
			}
			g, err := elastic.Join(ctx, p.config(i, p.members))
			if err != nil {
				return err
			}
			s, err := g.Sessions().Next(ctx, 0)
			if err == nil && s.Comm.Size() != 1 {
				err = fmt.Errorf("session %+v", s.View)
			}
			return errors.Join(err, g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// If the transport has seen the process of a member end, the death is certain: the other one of two
// members goes on alone.
func TestEndedInSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		told := make(chan struct{}) // the first cause of a revocation counts, so the streams break after it
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			if err := collective.Barrier(ctx, s.Comm); s.Comm.Rank() == 1 {
				<-told
				p.network.Kill(p.members[1].ID)
				return err
			}
			s.Comm.Revoke(&collective.PeerError{Rank: 1, Cause: "process ended", Ended: true})
			close(told)
			s, err := g.Sessions().Next(ctx, 0)
			if err == nil && s.Comm.Size() != 1 {
				err = fmt.Errorf("session %+v", s.View)
			}
			return err
		})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		if lost := p.sink.of("lost"); len(lost) != 1 || lost[0].Body.(event.Lost).Cause != "exit" {
			t.Errorf("events %v", lost)
		}
	})
}

// Invalid first views are errors.
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

// Next returns when its context ends.
func TestNextCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := newPeers(1).joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := g.Sessions().Next(ctx, 0)
			return want(err, context.Canceled)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// A stall of a collective call is logged with the IDs of the members for which the call waits.
func TestStallEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			if s.Rank == 2 {
				<-time.After(1500 * time.Millisecond)
			}
			return collective.Barrier(ctx, s.Comm)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		all := p.sink.of("stall")
		if len(all) != 4 {
			t.Fatalf("got %v", all)
		}
		for i, e := range all {
			s := e.Body.(event.Stall)
			if s.Over != (i >= 2) || s.Over && s.SinceMS < 1500 || s.Culprit != p.members[2].ID.Short() || s.Phase != "not in the call" || s.What != "barrier by recursive-doubling" || s.SinceMS < 1000 {
				t.Errorf("got %+v", s)
			}
		}
	})
}

// incapable is a Network that cannot connect any view.
type incapable struct {
	elastic.Network
	why error
}

func (i incapable) Connect(context.Context, elastic.View, int) (transport.Transport, error) {
	return nil, i.why
}

// If Connect returns an ErrNoView, the group ends with the error at once, without further views.
func TestNoWayAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		why := errors.New("no shared memory")
		p.adjust = func(_ int, cfg *elastic.Config) {
			cfg.Network = incapable{cfg.Network, fmt.Errorf("%w: %w", elastic.ErrNoView, why)}
		}
		errs := p.joined(t, func(context.Context, *elastic.Group, *elastic.Session) error { return nil })
		for i, err := range errs {
			if !errors.Is(err, why) || !errors.Is(err, elastic.ErrNoView) {
				t.Errorf("member %d: got %v, want that there is no way", i, err)
			}
		}
	})
}
