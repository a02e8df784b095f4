package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// tally counts what a driver does because of silent members: calls of Redial and of OnSuspect.
type tally struct {
	elastic.Network
	mu       *sync.Mutex
	redialed map[elastic.ID]int
	told     map[elastic.ID]int // number of calls of OnSuspect
}

func (t tally) Redial(id elastic.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.redialed[id]++
}

func (t tally) suspect(id elastic.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told[id]++
}

// Neither half of a partitioned group can go on without the other. When the partition heals, they
// continue with the same members. During the partition a member redials the silent member once, and
// reports it repeatedly to OnSuspect.
func TestHalvesMeetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		c := tally{mu: new(sync.Mutex), redialed: make(map[elastic.ID]int), told: make(map[elastic.ID]int)}
		r.adjust = func(i int, cfg *elastic.Config) {
			if i == 0 {
				c.Network = cfg.Network
				cfg.Network, cfg.OnSuspect = c, c.suspect
			}
		}
		r.during = divided("member0")
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if lost := r.sink.of("lost"); len(lost) > 0 || fmt.Sprint(r.lives) != "[0 0]" {
			t.Errorf("lost %v, new lives %v", lost, r.lives)
		}
		if c.redialed["member1"] != 1 || c.told["member1"] < 5 {
			t.Errorf("gave up connections with %v, told of %v", c.redialed, c.told)
		}
	})
}

// In larger halves some members may reconnect before others. All finish nevertheless.
func TestLargerHalvesMeetAgain(t *testing.T) {
	for _, n := range []int{4, 6} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(n, simnet.Config{Link: simnet.Link{Delay: time.Millisecond, Lag: 5 * time.Millisecond}})
			var side []elastic.ID
			for _, m := range r.members[:n/2] {
				side = append(side, m.ID)
			}
			r.during = divided(side...)
			if err := errors.Join(r.run(t)...); err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
		})
	}
}

// divided returns a fault that cuts some members off from the others for six seconds.
func divided(side ...elastic.ID) func(context.Context, *rig) {
	return func(_ context.Context, r *rig) {
		after(time.Second)
		r.net.Partition(side)
		after(6 * time.Second)
		r.net.Heal()
	}
}

// With Any both parts of a partitioned group go on. When the parts reconnect, the branch with more
// steps stays, even with fewer members, and the members of the other branch join it without state.
func TestBranchesMeet(t *testing.T) {
	for _, quick := range []int{2, 3} { // size of the branch with more steps
		t.Run(fmt.Sprint(quick), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(5, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
				r.until = 800
				var side []elastic.ID
				for i := range quick {
					side = append(side, r.members[i].ID)
				}
				r.adjust = func(i int, cfg *elastic.Config) { cfg.Any = true }
				r.begun = func(i int, l *loop) {
					if i >= quick {
						l.before = func(_ int64, epoch uint64) {
							if epoch > 1 {
								after(4 * oneStep)
							}
						}
					}
				}
				r.during = divided(side...)
				if err := errors.Join(r.run(t)...); err != nil {
					t.Fatal(err)
				}
				for i, l := range r.loops {
					lost := i >= quick
					if (r.lives[i] > 0) != lost || l.sizes[quick] == 0 == !lost || l.sizes[5] < 200 {
						t.Errorf("member %d: %d new lives, groups of %v", i, r.lives[i], l.sizes)
					}
				}
			})
		})
	}
}

// If a view is replaced before its session is entered, the session does not wait for members that
// never enter it.
func TestSessionOverBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.until = 20
		r.adjust = func(i int, cfg *elastic.Config) {
			if i < 2 {
				cfg.Network = slow{cfg.Network, r, r.members[i].ID}
			}
		}
		r.during = r.stopForGood(t, 2)
		errs := r.run(t)
		if err := errors.Join(errs[:2]...); err != nil {
			t.Fatal(err)
		}
	})
}

// slow is a Network whose Connect for the first view returns only when its member has received a
// later view.
type slow struct {
	elastic.Network
	rig *rig
	id  elastic.ID
}

func (s slow) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := s.Network.Connect(ctx, v, self)
	for v.Epoch == 1 && err == nil && !s.knowsMore() {
		after(oneStep)
	}
	return t, err
}

func (s slow) knowsMore() bool {
	return slices.ContainsFunc(s.rig.sink.of("view"), func(e event.Event) bool { return e.Peer == s.id.Short() && e.Epoch > 1 })
}

// The others finish while one member is stopped for good.
func TestStoppedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.until = 200
		r.during = r.stopForGood(t, 1)
		errs := r.run(t)
		errs[1] = nil
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// stopForGood returns a fault that stops a member, and checks a minute later that the others have
// finished without it.
func (r *rig) stopForGood(t *testing.T, victim int) func(context.Context, *rig) {
	return func(_ context.Context, r *rig) {
		after(50 * oneStep)
		r.net.Stop(r.members[victim].ID)
		after(time.Minute)
		for i, l := range r.loops {
			if i != victim && (l == nil || l.state.Step() != r.until) {
				t.Errorf("member %d did not come to the end: %+v", i, l)
			}
		}
		r.net.Kill(r.members[victim].ID)
	}
}
