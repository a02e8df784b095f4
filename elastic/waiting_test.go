package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// A group smaller than MinPeers waits, and goes on when a peer has joined. The newcomer gets a
// snapshot although no step is committed meanwhile.
func TestMinPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		p.adjust = func(_ int, cfg *elastic.Config) { cfg.MinPeers = 3 }
		var joining sync.WaitGroup
		late := func() {
			after(20 * time.Second)
			l, err := p.newcomer(t.Context(), elastic.Member{ID: "newcomer", Index: 9}, 50)
			if err != nil || l.state.(*replayer).loads != 1 || l.sizes[3] < 35 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		loops := p.run(t, 50, func(i int) bool { return i == 1 }, func(i int, step int64) {
			if i == 1 && step == 10 {
				joining.Go(late)
				p.network.Kill(p.members[i].ID)
			}
		})
		joining.Wait()
		for _, i := range []int{0, 2} {
			if sizes := loops[i].sizes; len(sizes) != 1 || sizes[3] != 50 {
				t.Errorf("member %d did steps with groups of %v", i, sizes)
			}
		}
	})
}

// A group whose first view is smaller than MinPeers begins when other peers have joined, which get
// the initial state. OnView receives each view at once, even before the member enters a session.
func TestMinPeersFromTheStart(t *testing.T) {
	for n := 1; n <= 2; n++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(n)
			begun := time.Now()
			var mu sync.Mutex
			told := make([]map[int]time.Duration, n) // time of the first view of each size, by member
			p.adjust = func(i int, cfg *elastic.Config) {
				cfg.MinPeers, told[i] = n+2, make(map[int]time.Duration)
				cfg.OnView = func(v elastic.View) {
					mu.Lock()
					defer mu.Unlock()
					if _, known := told[i][len(v.Members)]; !known {
						told[i][len(v.Members)] = time.Since(begun)
					}
				}
			}
			var joining sync.WaitGroup
			for i := range 2 {
				joining.Go(func() {
					after(time.Duration(i+1) * 20 * time.Second)
					l, err := p.newcomer(t.Context(), elastic.Member{ID: elastic.ID(fmt.Sprint("newcomer ", i)), Index: 9 + i}, 50)
					if err != nil || l.state.right() != nil || l.sizes[n+2] < 48 {
						t.Errorf("n=%d: newcomer %d: %v, %+v", n, i, err, l)
					}
				})
			}
			loops := p.run(t, 50, func(int) bool { return false }, func(int, int64) {})
			joining.Wait()
			for i, l := range loops {
				if at := told[i]; at[n] > time.Second || at[n+1] < 20*time.Second || at[n+1] > 30*time.Second { // the second newcomer comes at 40 s
					t.Errorf("n=%d: member %d is told of views at %v", n, i, at)
				}
				if l.sizes[n+2] != 50 {
					t.Errorf("n=%d: member %d did steps with groups of %v", n, i, l.sizes)
				}
			}
		})
	}
}

// A member may leave while too few are left to agree to it.
func TestLeaveWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		var joining sync.WaitGroup // without it a member that has not agreed on the first view would wait in Join
		joining.Add(len(p.members))
		errs := p.each(t, func(ctx context.Context, i int) error {
			g, err := elastic.Join(ctx, p.config(i, p.members))
			joining.Done()
			if err != nil {
				return err
			}
			joining.Wait()
			if i > 0 {
				p.network.Kill(p.members[i].ID)
				return g.Close()
			}
			var leaving sync.WaitGroup
			g.Sessions().OnQuorumLost(func() {
				leaving.Go(func() {
					after(time.Second)
					g.Leave()
				})
			})
			begun := time.Now()
			for epoch := uint64(0); err == nil; {
				var s *elastic.Session
				if s, err = g.Sessions().Next(ctx, epoch); err == nil {
					epoch = s.View.Epoch
					_ = collective.Barrier(ctx, s.Comm)
				}
			}
			leaving.Wait()
			if d := time.Since(begun); d > 10*time.Second {
				err = fmt.Errorf("left after %v: %w", d, err)
			}
			return errors.Join(want(err, elastic.ErrLeft), g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// The wait of a newcomer ends with the right error if the newcomer leaves, is closed, its context
// ends, or the job dies.
func TestEndOfJoining(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *peers, g *elastic.Group, cancel func())
		err  error
		word string
	}{
		"leave":  {func(_ *peers, g *elastic.Group, _ func()) { g.Leave() }, elastic.ErrLeft, ""},
		"close":  {func(_ *peers, g *elastic.Group, _ func()) { _ = g.Close() }, elastic.ErrNoView, "closed"},
		"cancel": {func(_ *peers, _ *elastic.Group, cancel func()) { cancel() }, context.Canceled, ""},
		"death":  {func(p *peers, _ *elastic.Group, _ func()) { p.network.Kill(p.members[0].ID) }, elastic.ErrNoView, "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers(1)
				first, err := elastic.Join(t.Context(), p.config(0, p.members)) // this member never calls Next
				if err != nil {
					t.Fatal(err)
				}
				g, err := elastic.Join(t.Context(), p.late(elastic.Member{ID: "newcomer"}, p.members[0]))
				if err != nil {
					t.Fatal(err)
				}
				g.Sessions().Hold(new(replayer), nil)
				ctx, cancel := context.WithCancel(t.Context())
				var ending sync.WaitGroup
				ending.Go(func() {
					after(5 * time.Second)
					c.end(p, g, cancel)
				})
				_, err = g.Sessions().Next(ctx, 0)
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.word) {
					t.Errorf("got %v, want %v", err, c.err)
				}
				ending.Wait()
				cancel()
				if err := errors.Join(g.Close(), first.Close(), p.network.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The last member finishes its job just after it has admitted a newcomer. The newcomer has no
// state, and returns an error instead of going on alone.
func TestJobEndsWhileJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		errs := p.each(t, func(ctx context.Context, i int) error {
			cfg := p.config(i, p.members[:1])
			if i == 1 {
				cfg = p.late(p.members[1], p.members[0])
			}
			g, err := elastic.Join(ctx, cfg)
			if err != nil {
				return err
			}
			state := new(counter)
			g.Sessions().Hold(state, nil)
			s, err := g.Sessions().Next(ctx, 0)
			if i == 1 {
				if err == nil {
					err = fmt.Errorf("went on in %v", s.View)
				}
				return errors.Join(want(err, elastic.ErrNoView), g.Close())
			}
			for err == nil && !s.Stale() {
				after(oneStep)
				state.commit()
				err = g.Sessions().Committed(state.step)
			}
			return errors.Join(err, g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// Peers can join and leave a job without a state; nothing is copied. Such a job refuses a newcomer
// with a state.
func TestWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.each(t, func(ctx context.Context, i int) error {
			cfg := p.config(i, p.members[:2:2])
			if i == 2 {
				cfg = p.late(p.members[2], p.members[0])
			}
			g, err := elastic.Join(ctx, cfg)
			if err != nil {
				return err
			}
			err = countToThree(ctx, g)
			return errors.Join(err, g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(1)
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			_, err := p.newcomer(ctx, elastic.Member{ID: "newcomer"}, 1)
			return want(err, elastic.ErrRefused)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// countToThree goes from session to session until a session has three members. No session may break
// because of a newcomer.
func countToThree(ctx context.Context, g *elastic.Group) error {
	for epoch := uint64(0); ; {
		s, err := g.Sessions().Next(ctx, epoch)
		if err != nil {
			return err
		}
		if s.Comm.Size() == 3 {
			return collective.Barrier(ctx, s.Comm)
		}
		epoch = s.View.Epoch
		for stale := false; !stale; {
			after(7 * time.Millisecond) // time for ticks of the driver
			if stale, err = s.Boundary(ctx); err != nil {
				return err
			}
		}
	}
}

// After Leave, Next of the last member returns ErrLeft. After Close it returns ErrNoView.
func TestNextAfterCloseAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := newPeers(1).joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			g.Leave()
			for stale := false; !stale; {
				after(oneStep)
				if ctx.Err() != nil {
					return fmt.Errorf("the session of the only member that left goes on")
				}
				var err error
				if stale, err = s.Boundary(ctx); err != nil {
					return err
				}
			}
			_, err := g.Sessions().Next(ctx, s.View.Epoch)
			if err := want(err, elastic.ErrLeft); err != nil {
				return err
			}
			if err := g.Close(); err != nil {
				return err
			}
			_, err = g.Sessions().Next(ctx, s.View.Epoch)
			return want(err, elastic.ErrNoView)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that was put out and gets no new identity ends with an error that contains the reason.
func TestReopenFails(t *testing.T) {
	errNoPort := errors.New("no port is free")
	for name, reopen := range map[string]func(context.Context) (elastic.Endpoint, error){
		"none": nil, "fails": func(context.Context) (elastic.Endpoint, error) { return elastic.Endpoint{}, errNoPort },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
				r.adjust = func(i int, cfg *elastic.Config) {
					if i == 2 {
						cfg.Reopen = reopen
					}
				}
				r.during = func(_ context.Context, r *rig) {
					after(time.Second)
					r.net.Stop(r.members[2].ID)
					after(3 * time.Second)
					r.net.Continue(r.members[2].ID)
				}
				errs := r.run(t)
				if err := errors.Join(errs[:2]...); err != nil {
					t.Fatal(err)
				}
				if !errors.Is(errs[2], elastic.ErrFenced) || reopen != nil && !errors.Is(errs[2], errNoPort) {
					t.Errorf("got %v", errs[2])
				}
			})
		})
	}
}

// Members of the first view with different settings do not begin: all end with an error that names
// the setting and both values.
func TestSettingsDiffer(t *testing.T) {
	for _, n := range []int{2, 5} {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(n)
			errs := p.each(t, func(ctx context.Context, i int) error {
				g, err := elastic.Join(ctx, p.config(i, p.members))
				if err != nil {
					return err
				}
				rate := map[bool]string{true: "0.2", false: "0.1"}[i == 1]
				g.Sessions().Hold(new(counter), []elastic.Setting{{Name: "--lr", Value: rate}})
				_, err = g.Sessions().Next(ctx, 0)
				return errors.Join(err, g.Close())
			})
			for i, err := range errs {
				if !errors.Is(err, collective.ErrMistake) || !strings.Contains(err.Error(), "peer 1 has --lr 0.2") {
					t.Errorf("peer %d of %d: got %v", i, n, err)
				}
			}
			if told := p.sink.of("mismatch"); len(told) < 1 {
				t.Error("no mismatch is in the log")
			}
		})
	}
}

// Members that begin with different states all get the state of rank 0, and log it.
func TestStatesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(4)
		errs := p.each(t, func(ctx context.Context, i int) error {
			g, err := elastic.Join(ctx, p.config(i, p.members))
			if err != nil {
				return err
			}
			c := &counter{sum: 7}
			if i == 2 {
				c.sum = 8
			}
			g.Sessions().Hold(c, nil)
			_, err = g.Sessions().Next(ctx, 0)
			if err == nil && c.sum != 7 {
				err = fmt.Errorf("rank %d begins with %d", i, c.sum)
			}
			return errors.Join(err, g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if told := p.sink.of("resync"); len(told) != 1 || told[0].Index != 2 {
			t.Errorf("resyncs in the log: %v", told)
		}
	})
}
