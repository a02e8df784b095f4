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

// tally counts what a keeper does about silent members.
type tally struct {
	elastic.Network
	mu       *sync.Mutex
	redialed map[elastic.ID]int
	told     map[elastic.ID]int // by OnSuspect
}

func (c tally) Redial(id elastic.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.redialed[id]++
}

func (c tally) suspect(id elastic.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[id]++
}

// Neither half of a group can go on without the other. When the two hear of each other
// again they do so as if nothing had happened. Meanwhile each gives up its connections
// with the other, once, and tells of it again and again.
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

// Of larger halves some members may find the others before the rest do. All come to the
// end all the same.
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

// divided returns what cuts some members off from the others for six seconds.
func divided(side ...elastic.ID) func(context.Context, *rig) {
	return func(_ context.Context, r *rig) {
		after(time.Second)
		r.net.Partition(side)
		after(6 * time.Second)
		r.net.Heal()
	}
}

// With Any both parts of a divided group go on. When they meet, the one that has done more
// steps wins, however few its members are, and the others come back to it with nothing.
func TestBranchesMeet(t *testing.T) {
	for _, quick := range []int{2, 3} { // members of the side that does more
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

// A session whose membership is over by the time it is entered does not wait for
// members that will never say a word.
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

// slow is a Network that takes so long to come back from the first view that its
// member knows of a later one.
type slow struct {
	elastic.Network
	rig *rig
	id  elastic.ID
}

func (c slow) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := c.Network.Connect(ctx, v, self)
	for v.Epoch == 1 && err == nil && !c.knowsMore() {
		after(oneStep)
	}
	return t, err
}

func (c slow) knowsMore() bool {
	return slices.ContainsFunc(c.rig.sink.of("view"), func(e event.Event) bool { return e.Peer == c.id.Short() && e.Epoch > 1 })
}

// The others finish while one of them is stopped and never comes back.
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

// stopForGood returns what stops a member, and looks a minute later whether the
// others have come to the end without it.
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
