package trainer_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// boards has the words that the members of each host share, by view. Unlike a segment it needs no real time.
type boards struct {
	mu    sync.Mutex
	views map[string]*noticeBoard
}

// noticeBoard has the words of one host in one view, by rank of the host.
type noticeBoard [][8]atomic.Uint64

// of returns the memory of a member of a view.
func (b *boards) of(v elastic.View, self int, x *actor) *transport.Shared {
	var ranks []int
	for rank, m := range v.Members {
		if m.Beside(v.Members[self]) {
			ranks = append(ranks, rank)
		}
	}
	if ranks == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprintf("%x %s", v.Hash(), v.Members[self].Host)
	if b.views[key] == nil {
		fresh := make(noticeBoard, len(ranks))
		b.views[key] = &fresh
	}
	return &transport.Shared{Words: noted{*b.views[key], slices.Index(ranks, self), x}, Ranks: ranks}
}

// noted is the board of one member. A member that is dead changes nothing.
type noted struct {
	board noticeBoard
	self  int
	x     *actor
}

func (n noted) LoadWord(rank, i int) uint64 {
	if n.x.killed.Load() {
		return 0
	}
	return n.board[rank][i].Load()
}

func (n noted) StoreWord(i int, v uint64) {
	if i == 0 {
		n.x.stores.Add(1)
	}
	if n.x.touching(i) {
		n.board[n.self][i].Store(v)
	}
}

func (n noted) SwapWord(rank, i int, old, next uint64) bool {
	return n.x.touching(i) && n.board[rank][i].CompareAndSwap(old, next)
}

// touching counts the changes of queues by the process, and kills it at the change killAtTouch. It returns false for a dead process.
func (a *actor) touching(word int) bool {
	if word == 0 && a.touched.Add(1) == a.killAtTouch.Load() {
		a.kill()
	}
	return !a.killed.Load()
}

// hosted returns an arena whose members are on hosts with the given numbers of members and share words there. In each step a
// random member is slow by the factor; its speed does not follow from earlier steps.
func hosted(cfg trainer.Config, slow int, perHost ...int) *arena {
	n := 0
	for _, members := range perHost {
		n += members
	}
	a := newArena(n, cfg)
	a.boards = &boards{views: make(map[string]*noticeBoard)}
	for host, first := 0, 0; host < len(perHost); host++ {
		for i := range perHost[host] {
			a.first[first+i].Host = fmt.Sprint("host ", host)
		}
		first += perHost[host]
	}
	a.adjust = func(x *actor) {
		x.cfg.Hooks.OnBegin = func(step int64) {
			x.model.pace = time.Millisecond
			if int(step*7/3)%n == x.self.Index {
				x.model.pace *= time.Duration(slow)
			}
		}
	}
	return a
}

// stealing is the configuration of a job with 32 microbatches in most steps.
func stealing(steps int64, exactly bool) trainer.Config {
	cfg := churning(steps, exactly)
	cfg.Samples, cfg.GlobalBatch = 400, 160
	return cfg
}

// stolen returns the number of microbatches that members of the arena have stolen, and of all.
func (a *arena) stolen() (stolen, all int) {
	for _, e := range a.events.events {
		if s, ok := e.Body.(event.Step); ok {
			stolen += s.Stolen
			for _, r := range s.Microbatches {
				all += r[1] - r[0]
			}
		}
	}
	return stolen, all
}

// If a random member is slow in each step, the others take what it has not begun. A step then takes little longer than if the
// speeds were known in advance. The weights are those of a single process, whoever computes what.
func TestStealing(t *testing.T) {
	t.Parallel()
	for _, exactly := range []bool{true, false} {
		cfg := stealing(20, exactly)
		want := alone(t, cfg)
		for _, perHost := range [][]int{{2}, {4}, {3, 2}} {
			took := make(map[string]time.Duration)
			for _, how := range []string{trainer.StealAuto, trainer.StealOff} {
				synctest.Test(t, func(t *testing.T) {
					cfg.Balancing.Steal = how
					a := hosted(cfg, 5, perHost...)
					begun := time.Now()
					a.play(t)
					for _, e := range a.events.events { // without the time in which the members leave
						if _, ok := e.Body.(event.Done); ok {
							took[how] = max(took[how], e.Time.Sub(begun))
						}
					}
					about := fmt.Sprintf("exact %t, hosts of %v, %s", exactly, perHost, how)
					if sha := a.check(t, about); exactly && sha != want {
						t.Errorf("%s: weights %s, want %s", about, sha, want)
					}
					stolen, all := a.stolen()
					if how == trainer.StealOff && stolen > 0 || how == trainer.StealAuto && stolen < all/50 {
						t.Errorf("%s: %d of %d microbatches were stolen", about, stolen, all)
					}
				})
			}
			if len(perHost) == 1 && perHost[0] == 4 && took[trainer.StealOff] < took[trainer.StealAuto]*5/2 {
				t.Errorf("exact %t, hosts of %v: %v with stealing, and %v without", exactly, perHost, took[trainer.StealAuto], took[trainer.StealOff])
			}
		}
	}
}

// Where all members are equally fast nothing is stolen.
func TestNothingIsStolenFromEquals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := hosted(stealing(20, false), 1, 4)
		a.play(t)
		a.check(t, "equals")
		if stolen, all := a.stolen(); stolen > 0 {
			t.Errorf("%d of %d microbatches were stolen", stolen, all)
		}
	})
}

// A member dies before or after each change of a queue: as an owner, as a thief, with a queue that others rob. The survivors compute
// nothing twice, the ledger is whole, and the weights are those of a single process.
func TestKillAtEveryClaim(t *testing.T) {
	t.Parallel()
	cfg := stealing(4, true)
	want := alone(t, cfg)
	for victim := range 3 {
		touches := int64(1 << 30)
		for k := int64(1); k <= touches; k += pick[int64](2, 1) {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("rank %d killed at the change %d of a queue", victim, k)
				a := hosted(cfg, 5, 3)
				slow := a.adjust
				a.adjust = func(x *actor) {
					slow(x)
					if x.self.Index == victim {
						x.killAtTouch.Store(k)
					}
				}
				a.play(t)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				if !a.actors[victim].killed.Load() {
					touches = 0 // the victim has made all its changes
				}
			})
		}
	}
}

// A sample that ends its thief is asked for before the next member computes it, although it was in the share of another member.
func TestStolenSamplesAreSuspected(t *testing.T) {
	t.Parallel()
	asked := false
	synctest.Test(t, func(t *testing.T) {
		a := hosted(stealing(6, true), 5, 4)
		slow := a.adjust
		var mu sync.Mutex
		var died *actor
		var part []int // what the thief was computing
		a.adjust = func(x *actor) {
			slow(x)
			x.trained = modelFunc(func() trainer.Model {
				return around(x.model.Model(), func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
					mu.Lock()
					if died == nil && b.Step() >= 2 && x.stores.Load() == 2 { // its queue has become what it has stolen
						died, part = x, slices.Clone(b.Samples())
						x.kill()
					}
					mu.Unlock()
					return gradient(b)
				})
			})
		}
		a.retry = func(_ *actor, r elastic.Retry) (func(), error) {
			mu.Lock()
			defer mu.Unlock()
			asked = asked || died != nil && slices.Contains(r.Of, died.self.ID) && slices.Contains(r.Samples, part[0])
			return func() {}, nil
		}
		a.play(t)
		a.check(t, "a deadly sample")
		if died == nil {
			t.Fatal("no thief has died")
		}
	})
	if !asked {
		t.Error("nobody has asked before it computed the sample again")
	}
}

// The bound on a member's share also bounds what it steals.
func TestMaxShareBoundsThefts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := stealing(12, false)
		cfg.Balancing.Policy = "equal"
		a := hosted(cfg, 5, 4)
		slow := a.adjust
		a.adjust = func(x *actor) {
			slow(x)
			if x.self.Index == 1 {
				x.cfg.Balancing.MaxShare = 9
			}
		}
		a.play(t)
		a.check(t, "a bound")
		most := [4]int{}
		for _, x := range a.actors {
			for _, s := range x.steps {
				n := 0
				for _, r := range s.Microbatches {
					n += r[1] - r[0]
				}
				most[x.self.Index] = max(most[x.self.Index], n)
			}
		}
		if most[1] != 9 || most[0] <= 9 {
			t.Errorf("members have computed up to %d microbatches of a step; the second one is bound to 9", most)
		}
	})
}

// Members that die, join and steal at the same time.
func TestStealingWhileMembersChange(t *testing.T) {
	t.Parallel()
	cfg := stealing(60, true)
	want := alone(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		a := hosted(cfg, 5, 4)
		var joined atomic.Int32
		a.adjust = func(x *actor) {
			age := int64(x.self.Index)
			x.cfg.Hooks.OnBegin = func(step int64) {
				x.model.pace = time.Millisecond
				if int(step*7/3)%4 == x.self.Index%4 {
					x.model.pace *= 5
				}
				if n := joined.Load(); n < 5 && step == 8*int64(n+1) && joined.CompareAndSwap(n, n+1) {
					a.start(elastic.Member{ID: elastic.ID(fmt.Sprintf("late-peer-%02d", n)), Index: 4 + int(n), Host: "host 0"}, nil)
				}
				if age < 5 && step == 15+8*age {
					x.kill()
				}
			}
		}
		a.play(t)
		if sha := a.check(t, "changes"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		if stolen, all := a.stolen(); stolen < all/50 {
			t.Errorf("%d of %d microbatches were stolen", stolen, all)
		}
	})
}
