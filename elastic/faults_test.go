package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// rig is a group on a faulty network. Its members count up to a step.
type rig struct {
	net            *simnet.Network
	sink           *record
	members        []elastic.Member
	until          int64
	pause          time.Duration
	adjust         func(i int, cfg *elastic.Config)  // changes a member's Config; may be nil
	adjustNewcomer func(cfg *elastic.Config)         // changes the Config of newcomers; may be nil
	begun          func(i int, l *loop)              // called before a member's run; may be nil
	during         func(ctx context.Context, r *rig) // causes the faults, in a goroutine of its own
	loops          []*loop
	groups         []*elastic.Group // guarded by mu
	mu             sync.Mutex
	lives          []int // number of new identities of each member, guarded by mu
}

func newRig(n int, c simnet.Config) *rig {
	r := &rig{net: simnet.New(c), sink: new(record), until: 400, pause: oneStep, loops: make([]*loop, n), lives: make([]int, n)}
	for i := range n {
		r.members = append(r.members, elastic.Member{ID: elastic.ID(fmt.Sprintf("member%d", i)), Index: i})
	}
	return r
}

// config returns the Config of member i, which gets a new identity when it is fenced.
func (r *rig) config(i int) elastic.Config {
	cfg := elastic.Config{Endpoint: r.net.Endpoint(r.members[i]), Peers: r.members, Sink: r.net.Sink(r.sink), RejoinTimeout: time.Minute}
	cfg.Reopen = func(context.Context) (elastic.Endpoint, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lives[i]++
		id := elastic.ID(fmt.Sprintf("member%d.%d", i, r.lives[i]))
		return r.net.Endpoint(elastic.Member{ID: id, Index: i}), nil
	}
	if r.adjust != nil {
		r.adjust(i, &cfg)
	}
	return cfg
}

// run lets all members count, and returns their errors.
func (r *rig) run(t *testing.T) []error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make([]error, len(r.members))
	var all sync.WaitGroup
	for i := range r.members {
		all.Go(func() {
			g, err := elastic.Join(ctx, r.config(i))
			if err != nil {
				errs[i] = err
				return
			}
			l := &loop{g: g, state: new(replayer), until: r.until, pause: r.pause}
			r.loops[i] = l
			if r.begun != nil {
				r.begun(i, l)
			}
			g.Sessions().Hold(l.state, nil)
			err = l.run(ctx)
			errs[i] = errors.Join(err, l.state.right(), g.Close())
		})
	}
	if r.during != nil {
		all.Go(func() { r.during(ctx, r) })
	}
	all.Wait()
	if err := r.net.Close(); err != nil {
		t.Error(err)
	}
	return errs
}

// after waits in virtual time.
func after(d time.Duration) { <-time.After(d) }

// outAfter returns the time from begin until all other members had a view without the member id. It
// requires that at least the given number of other members had such a view.
func (r *rig) outAfter(t *testing.T, id elastic.ID, begin time.Time, others int) time.Duration {
	t.Helper()
	out := make(map[string]time.Time)
	for _, e := range r.sink.of("view") {
		gone := !slices.Contains(e.Body.(event.View).Members, id.Short())
		first := slices.ContainsFunc(r.members, func(m elastic.Member) bool { return m.ID != id && m.ID.Short() == e.Peer })
		if gone && first && out[e.Peer].IsZero() && !e.Time.Before(begin) {
			out[e.Peer] = e.Time
		}
	}
	if len(out) < others {
		t.Fatalf("%s is out at %d members, want %d", id, len(out), others)
	}
	var last time.Duration
	for _, at := range out {
		last = max(last, at.Sub(begin))
	}
	return last
}

// A stopped member is put out within two seconds. When it continues it is fenced, discards its
// state and joins again under a new ID.
func TestStopped(t *testing.T) {
	for victim := range 4 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(4, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
			r.until, r.pause = 100, 100*time.Millisecond
			var begin time.Time
			r.during = func(_ context.Context, r *rig) {
				after(1500 * time.Millisecond)
				begin = time.Now()
				r.net.Stop(r.members[victim].ID)
				after(3 * time.Second)
				r.net.Continue(r.members[victim].ID)
			}
			if err := errors.Join(r.run(t)...); err != nil {
				t.Fatalf("victim %d: %v", victim, err)
			}
			if d := r.outAfter(t, r.members[victim].ID, begin, 3); d > 2*time.Second {
				t.Errorf("victim %d: out after %v", victim, d)
			}
			if r.lives[victim] != 1 || r.loops[victim].sizes[4] < 20 {
				t.Errorf("victim %d: %d new lives, groups of %v", victim, r.lives[victim], r.loops[victim].sizes)
			}
			r.explained(t, r.members[victim].ID)
		})
	}
}

// explained checks that the log tells why a silent member was put out. Each member that suspected
// the silent member logs the exceeded limit, and the member that proposed the decision logs the
// reason.
func (r *rig) explained(t *testing.T, id elastic.ID) {
	t.Helper()
	told := false
	for _, e := range r.sink.of("lost") {
		l := e.Body.(event.Lost)
		if limited := l.Cause == "silent" || l.Cause == "unreachable"; limited != (l.LimitMS >= 1300) {
			t.Errorf("%s: %+v", e.Peer, l)
		}
		told = told || l.LimitMS > 0 && l.Who == id.Short()
	}
	if !told {
		t.Errorf("nobody tells the limit that %s exceeded", id.Short())
	}
	if !slices.ContainsFunc(r.sink.of("decided"), func(e event.Event) bool {
		why := e.Body.(event.Decided).Why
		return strings.Contains(why, id.Short()+" and ") && strings.Contains(why, "cannot reach each other")
	}) {
		t.Errorf("nobody tells why %s is out: %+v", id.Short(), r.sink.of("decided"))
	}
}

// A member whose messages are lost without an error, in both directions or in one, is put out
// within two seconds.
func TestBlackHole(t *testing.T) {
	for _, way := range []string{"both", "in", "out"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(5, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
				r.until, r.pause = 100, 100*time.Millisecond
				victim := r.members[1].ID
				var begin time.Time
				r.during = func(_ context.Context, r *rig) {
					after(1500 * time.Millisecond)
					begin = time.Now()
					if way != "out" {
						r.net.Cut(simnet.Any, victim)
					}
					if way != "in" {
						r.net.Cut(victim, simnet.Any)
					}
					after(3 * time.Second)
					r.net.Heal()
				}
				if err := errors.Join(r.run(t)...); err != nil {
					t.Fatal(err)
				}
				if d := r.outAfter(t, victim, begin, 4); d > 2*time.Second {
					t.Errorf("out after %v", d)
				}
				if r.lives[1] != 1 {
					t.Errorf("%d new lives", r.lives[1])
				}
			})
		})
	}
}

// The members of a partitioned minority wait, and join again by themselves when the partition
// heals.
func TestPartitionHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(5, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.until = 1500
		r.during = func(_ context.Context, r *rig) {
			after(time.Second)
			r.net.Partition([]elastic.ID{"member0", "member3"})
			after(4 * time.Second)
			r.net.Heal()
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(r.lives) != "[1 0 0 1 0]" {
			t.Errorf("new lives %v", r.lives)
		}
	})
}

// If connections break while all members live, only the session is lost, and no member is put out.
func TestResetConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.during = func(_ context.Context, r *rig) {
			for i := range 4 {
				after(500 * time.Millisecond)
				r.net.Reset(r.members[i].ID, r.members[(i+2)%4].ID)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if lost := r.sink.of("lost"); len(lost) > 0 {
			t.Errorf("%v", lost)
		}
		renewed := 0
		for _, e := range r.sink.of("view") {
			if e.Body.(event.View).Reason == "renew" {
				renewed++
			}
		}
		if renewed < 8 {
			t.Errorf("%d views with reason renew", renewed)
		}
	})
}

// If a member dies at any of its control messages, the others finish.
func TestKillAtControlMessages(t *testing.T) {
	for victim := range 3 {
		for at := 1; at < 60; at += 3 {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(4, simnet.Config{Seed: uint64(at), Link: simnet.Link{Delay: time.Millisecond, Lag: 2 * time.Millisecond}})
				r.until = 60
				id := r.members[victim].ID
				r.net.KillWhen(func(m simnet.Message) bool {
					return m.From == id && m.Plane == simnet.Control && m.Number == at
				})
				r.adjust = func(i int, cfg *elastic.Config) {
					if i == victim {
						cfg.Reopen = nil
					}
				}
				errs := r.run(t)
				errs[victim] = nil
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("victim %d at message %d: %v", victim, at, err)
				}
			})
		}
	}
}

// cutting is a Sink that calls cut at the first event Fenced.
type cutting struct {
	event.Sink
	once sync.Once
	cut  func()
}

// Emit implements event.Sink.
func (c *cutting) Emit(e event.Event) {
	if _, ok := e.Body.(event.Fenced); ok {
		c.once.Do(c.cut)
	}
	c.Sink.Emit(e)
}

// The only member that has decided the view without itself comes back under another ID. The other member, which
// did not get the decision at once, does not wait for the vote of the ID that is gone.
func TestDeciderComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = time.Second
		r := newRig(2, simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond}})
		one, other := r.members[0].ID, r.members[1].ID
		r.adjust = func(i int, cfg *elastic.Config) {
			if i == 0 {
				cfg.Sink = &cutting{Sink: cfg.Sink, cut: func() {
					r.net.Cut(one, other)
					time.AfterFunc(lasts/2, func() { r.net.Reset(one, other) }) // what is on its way is lost
					time.AfterFunc(lasts, func() { r.net.Mend(one, other) })
				}}
			}
		}
		r.begun = func(i int, l *loop) {
			l.before = func(step int64, epoch uint64) {
				if i == 0 && step == 10 && epoch == 1 {
					l.g.StepDown("a test")
				}
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if len(r.sink.of("fenced")) != 1 || r.loops[1].sizes[2] < 300 {
			t.Errorf("%d members were put out, member 1 was in groups of %v", len(r.sink.of("fenced")), r.loops[1].sizes)
		}
	})
}
