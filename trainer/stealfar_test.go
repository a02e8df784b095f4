package trainer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
)

// farther returns a job of members on hosts with the given numbers of members, between which a message takes 10 ms. A microbatch takes
// 50 ms. In each step a random member is slow by the factor.
func farther(cfg trainer.Config, slow int, perHost ...int) *arena {
	a := hosted(cfg, slow, perHost...)
	a.network = simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: 10 * time.Millisecond}})
	adjust := a.adjust
	a.adjust = func(x *actor) {
		adjust(x)
		begin := x.cfg.Hooks.OnBegin
		x.cfg.Hooks.OnBegin = func(step int64) {
			begin(step)
			x.model.pace *= 50
		}
	}
	return a
}

// medianStep returns the median time of a step, in milliseconds.
func (a *arena) medianStep() float64 {
	var all []float64
	for _, e := range a.events.events {
		if s, ok := e.Body.(event.Step); ok {
			all = append(all, s.StepMS)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// farStealing is the configuration of a job that steals between hosts, or not.
func farStealing(steps int64, exactly bool, how string) trainer.Config {
	cfg := stealing(steps, exactly)
	cfg.Balancing.Steal = how
	return cfg
}

// Between hosts a member that is early takes microbatches of a slow member, whose model is in a call. The weights are those of a single
// process.
func TestStealingBetweenHosts(t *testing.T) {
	t.Parallel()
	const steps = 12
	for _, exactly := range []bool{true, false} {
		want, layouts := alone(t, stealing(steps, exactly)), [][]int{{1, 1, 1, 1}}
		if exactly && !race.Enabled {
			layouts = append(layouts, []int{2, 2}, []int{1, 1}, []int{3, 1, 1})
		}
		for _, perHost := range layouts {
			median := make(map[string]float64)
			for _, how := range []string{trainer.StealFar, trainer.StealOff} {
				synctest.Test(t, func(t *testing.T) {
					about := fmt.Sprintf("exact %t, hosts of %v, %s", exactly, perHost, how)
					a := farther(farStealing(steps, exactly, how), 5, perHost...)
					a.play(t)
					if sha := a.check(t, about); exactly && sha != want {
						t.Errorf("%s: weights %s, want %s", about, sha, want)
					}
					if stolen, all := a.stolen(); (how == trainer.StealFar) != (stolen >= all/50) {
						t.Errorf("%s: %d of %d microbatches were stolen", about, stolen, all)
					}
					median[how] = a.medianStep()
				})
			}
			t.Logf("exact %t, hosts of %v: steps of %.0f ms with stealing between hosts, %.0f ms without", exactly, perHost, median[trainer.StealFar], median[trainer.StealOff])
			if len(perHost) == 4 && median[trainer.StealOff] < 2*median[trainer.StealFar] {
				t.Errorf("exact %t, hosts of %v: steps of %v ms", exactly, perHost, median)
			}
		}
	}
}

// Where all members are equally fast, stealing between hosts costs nothing, and nothing is stolen.
func TestEqualsBetweenHosts(t *testing.T) {
	t.Parallel()
	for _, perHost := range [][]int{{1, 1}, {1, 1, 1, 1}, {2, 2}} {
		median := make(map[string]float64)
		for _, how := range []string{trainer.StealFar, trainer.StealOff} {
			synctest.Test(t, func(t *testing.T) {
				a := farther(farStealing(20, false, how), 1, perHost...)
				a.play(t)
				a.check(t, how)
				if stolen, all := a.stolen(); stolen > 0 {
					t.Errorf("hosts of %v: %d of %d microbatches were stolen", perHost, stolen, all)
				}
				median[how] = a.medianStep()
			})
		}
		if median[trainer.StealFar]*0.98 > median[trainer.StealOff] {
			t.Errorf("hosts of %v: steps of %v ms", perHost, median)
		}
	}
}

// A member dies before each of its notes: as an owner, as a thief that has got microbatches or not. The survivors compute nothing twice,
// the ledger is whole, and the weights are those of a single process.
func TestKillAtEveryNote(t *testing.T) {
	t.Parallel()
	cfg := farStealing(4, true, trainer.StealFar)
	want, gap := alone(t, cfg), pick[int64](2, 1)
	if race.Enabled {
		gap = 5
	}
	kills := make(map[int64]int) // by the kind of the note
	for victim := range 3 {
		notes := int64(1 << 30)
		for k := int64(1); k <= notes; k += gap {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("rank %d killed at note %d", victim, k)
				a := farther(cfg, 5, 1, 1, 1)
				adjust := a.adjust
				a.adjust = func(x *actor) {
					adjust(x)
					if x.self.Index == victim {
						x.killAtNote.Store(k)
					}
				}
				a.play(t)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				if !a.actors[victim].killed.Load() {
					notes = 0 // the victim has sent all its notes
					return
				}
				kills[a.actors[victim].kindAtKill.Load()]++
			})
		}
	}
	if t.Logf("kills: %v", kills); len(kills) < 4 && !race.Enabled { // before asks, answers, takes and what a thief is given
		t.Errorf("kills at %d kinds of notes", len(kills))
	}
}

// Notes are lost, takes and their answers among them: no microbatch is.
func TestLostNotes(t *testing.T) {
	t.Parallel()
	cfg := farStealing(8, true, trainer.StealFar)
	want := alone(t, cfg)
	for _, losing := range []int64{1, 2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			about := fmt.Sprintf("one note of %d is lost", losing)
			a := farther(cfg, 5, 1, 1, 1, 1)
			adjust := a.adjust
			a.adjust = func(x *actor) {
				adjust(x)
				x.losing.Store(losing)
			}
			a.play(t)
			if sha := a.check(t, about); sha != want {
				t.Errorf("%s: weights %s, want %s", about, sha, want)
			}
			if stolen, all := a.stolen(); (losing > 1) != (stolen > 0) {
				t.Errorf("%s: %d of %d microbatches were stolen", about, stolen, all)
			}
		})
	}
}
