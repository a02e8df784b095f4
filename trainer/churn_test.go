package trainer_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// alone returns the weights of a single process.
func alone(t *testing.T, cfg trainer.Config) (sha string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		a.play(t)
		sha = a.check(t, "alone")
	})
	return sha
}

// In each run a member dies before one of its messages: every tenth message is tried, or every third in the long form of the test.
// Survivors compute nothing twice, except the first step in exact mode, if the first scale does not fit.
func TestKillAtEveryMessage(t *testing.T) {
	t.Parallel()
	for _, exactly := range []bool{false, true} {
		cfg := churning(5, exactly)
		want := alone(t, cfg)
		for victim := range 3 {
			messages := int64(1 << 30)
			for k := int64(1); k <= messages; k += pick[int64](10, 3) {
				synctest.Test(t, func(t *testing.T) {
					about := fmt.Sprintf("exact %t: rank %d killed at message %d", exactly, victim, k)
					a := newArena(3, cfg)
					a.adjust = func(x *actor) {
						if x.self.Index == victim {
							x.killAt.Store(k)
						}
					}
					a.play(t)
					sha := a.check(t, about)
					if exactly && sha != want {
						t.Errorf("%s: weights %s, want %s", about, sha, want)
					}
					if x := a.actors[victim]; !x.killed.Load() {
						messages = 0 // the victim has sent all its messages
					}
				})
			}
		}
	}
}

// In each run two of five members die, each before one of its messages. Many pairs of messages are tried, twice as many in the long
// form of the test. The second death occurs in the same collective call, in the view change after the first death, or later.
func TestKillTwoAtManyMessages(t *testing.T) {
	cfg := churning(4, true)
	want := alone(t, cfg)
	for k := int64(20); k < 140; k += pick[int64](26, 13) {
		for gap := int64(-1); gap < 40; gap += 7 {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("rank 1 killed at message %d, rank 3 %d later", k, gap)
				a := newArena(5, cfg)
				a.adjust = func(x *actor) {
					switch x.self.Index {
					case 1:
						x.killAt.Store(k)
					case 3:
						x.killAt.Store(k + gap)
					}
				}
				a.play(t)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
			})
		}
	}
}

// Twenty peers die and twenty others join. The weights are the same as with a single process, and every sample counts once.
func TestKillsAndJoins(t *testing.T) {
	cfg := churning(350, true)
	want := alone(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		var joined, died atomic.Int32
		a.adjust = func(x *actor) {
			x.model.pace = 10 * time.Millisecond
			age := int64(x.self.Index) // the order of arrival
			x.cfg.Hooks.OnBegin = func(step int64) {
				// At each step that is a multiple of 15, the first peer to begin the step starts another peer.
				if n := joined.Load(); n < 20 && step == 15*int64(n+1) && joined.CompareAndSwap(n, n+1) {
					a.start(elastic.Member{ID: elastic.ID(fmt.Sprintf("late-peer-%02d", n)), Index: 3 + int(n)}, nil)
				}
				if age < 20 && step == 38+15*age {
					died.Add(1)
					x.kill()
				}
			}
		}
		a.play(t)
		if sha := a.check(t, "kills and joins"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		if joined.Load() != 20 || died.Load() != 20 {
			t.Errorf("%d peers joined, %d died", joined.Load(), died.Load())
		}
	})
}

// A peer dies in the middle of a join: the newcomer, or a member that may be the newcomer's donor. It dies before one of its
// messages. Many messages are tried, twice as many in the long form of the test.
func TestKillWhileAPeerJoins(t *testing.T) {
	t.Parallel()
	cfg := churning(40, true)
	want := alone(t, cfg)
	for victim := range 4 { // the last one is the newcomer
		for k := int64(1); k < 100; k += pick[int64](14, 7) {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("rank %d killed %d messages after the join has begun", victim, k)
				a := newArena(3, cfg)
				var begun atomic.Bool
				a.adjust = func(x *actor) {
					x.model.pace = 100 * time.Millisecond
					if x.self.Index == 3 && victim == 3 {
						x.killAt.Store(k)
					}
					x.cfg.Hooks.OnBegin = func(step int64) {
						if step == 3 && begun.CompareAndSwap(false, true) {
							a.start(elastic.Member{ID: "newcomer", Index: 3}, nil)
						}
						if step == 3 && x.self.Index == victim && x.killAt.Load() == 0 {
							x.killAt.Store(x.sent.Load() + k)
						}
					}
				}
				a.play(t)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
			})
		}
	}
}

// A peer is cut off for a while, and the others put it out. Its contribution does not count. When that peer learns that it was put
// out, it joins again with a new identity and computes with the others.
func TestAFencedPeerComesBack(t *testing.T) {
	cfg := churning(80, true)
	want := alone(t, cfg)
	for silent := range 3 {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, cfg)
			a.adjust = func(x *actor) {
				x.model.pace = 50 * time.Millisecond
				if x.self.Index != silent {
					return
				}
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == 5 {
						x.muted.Store(true)
					}
				}
			}
			a.play(t)
			if sha := a.check(t, fmt.Sprint("rank ", silent, " is silent")); sha != want {
				t.Errorf("weights %s, want %s", sha, want)
			}
			x := a.actors[silent]
			if x.reopened != 1 || len(x.steps) < 10 || len(x.steps) > 79 {
				t.Errorf("it came back %d times and reported %d steps", x.reopened, len(x.steps))
			}
		})
	}
}

// A peer with other settings gets an error that names the setting. It does not disturb the others.
func TestOtherSettingsAreRefused(t *testing.T) {
	cfg := churning(60, false)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, cfg)
		a.adjust = func(x *actor) {
			x.model.pace = 10 * time.Millisecond
			switch x.self.Index {
			case 0:
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == 5 {
						a.start(elastic.Member{ID: "a-peer-with-another-microbatch", Index: 2}, nil)
					}
				}
			case 2:
				x.cfg.Microbatch = 4
			}
		}
		a.play(t)
		x := a.actors[2]
		if !errors.Is(x.err, elastic.ErrRefused) || !strings.Contains(x.err.Error(), "microbatch is 5") {
			t.Errorf("error %v", x.err)
		}
		x.killed.Store(true) // the peer has no result
		a.check(t, "somebody is refused")
	})
}

// A member leaves at a step boundary. Its last contribution is in the log of the others.
func TestLeaving(t *testing.T) {
	for leaver := range 3 {
		cfg := churning(12, true)
		want := alone(t, cfg)
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, cfg)
			a.adjust = func(x *actor) {
				if x.self.Index == leaver {
					x.cfg.Hooks.OnBegin = func(step int64) {
						if step == 5 {
							x.group.Leave()
						}
					}
				}
			}
			a.play(t)
			x := a.actors[leaver]
			if !errors.Is(x.err, elastic.ErrLeft) || len(x.steps) < 4 || len(x.steps) > 9 {
				t.Errorf("the leaver reported %d steps, error %v", len(x.steps), x.err)
			}
			x.killed.Store(true) // the peer has no result
			a.checkTries(t, "leaving")
			if sha := a.check(t, fmt.Sprint("rank ", leaver, " leaves")); sha != want {
				t.Errorf("weights %s, want %s", sha, want)
			}
		})
	}
}

// Many peers join and none dies; the last peers join while the job ends. No step is interrupted or repeated, and all admitted
// peers end together. The test repeats the job, because chance decides which member learns of a newcomer first.
func TestJoining(t *testing.T) {
	for range 8 {
		synctest.Test(t, joining)
	}
}

// joining plays a job that other peers join.
func joining(t *testing.T) {
	t.Helper()
	a := newArena(2, churning(100, false))
	a.adjust = func(x *actor) {
		x.model.pace = 10 * time.Millisecond
		if x.self.Index == 0 {
			x.cfg.Hooks.OnBegin = func(step int64) {
				if step%12 == 0 || step > 96 {
					a.start(elastic.Member{ID: elastic.ID(fmt.Sprintf("late-peer-%02d", step)), Index: int(step)}, nil)
				}
			}
		}
	}
	a.play(t)
	for _, x := range a.actors {
		// A join takes up to seven steps. So a peer that starts in the last steps may get no view before the others have ended.
		if errors.Is(x.err, elastic.ErrNoView) && x.self.Index >= 96 && len(x.tries) == 0 {
			x.killed.Store(true)
		}
	}
	a.checkTries(t, "joining")
	a.check(t, "joining")
	if n := a.actors[0].result.Peers; n < 8 || len(a.actors) != 14 {
		t.Errorf("%d of %d peers at the end", n, len(a.actors))
	}
}
