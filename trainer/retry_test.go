package trainer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// deadly is an arena in which a sample kills the process of each peer that computes it, at most most of them. part is what the
// first of them was computing.
func deadly(n, most int, sample int) (a *arena, part func() (step int64, samples []int)) {
	a = newArena(n, churning(7, true))
	var step int64
	var samples []int
	killed := 0
	a.adjust = func(x *actor) {
		x.trained = modelFunc(func() trainer.Model {
			return around(x.model.Model(), func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
				if slices.Contains(b.Samples(), sample) && killed < most {
					if killed++; killed == 1 {
						step, samples = b.Step(), slices.Clone(b.Samples())
					}
					// The others enter the session meanwhile, and so know what this peer computes.
					<-time.After(time.Second)
					x.kill()
				}
				return gradient(b)
			})
		})
	}
	return a, func() (int64, []int) { return step, samples }
}

// modelFunc is a model for actor.trained.
type modelFunc func() trainer.Model

func (m modelFunc) Model() trainer.Model { return m() }

// Before a peer computes a microbatch again it names the step, the samples, and the members that are gone, and afterwards it says
// that it is done. Microbatches of nobody who is gone are not named.
func TestRetries(t *testing.T) {
	for _, most := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			a, part := deadly(4, most, 33)
			var mu sync.Mutex
			var of [][]elastic.ID // for each request about the sample
			open := 0
			a.retry = func(x *actor, r elastic.Retry) (func(), error) {
				mu.Lock()
				defer mu.Unlock()
				open++
				for _, id := range r.Of {
					i := slices.IndexFunc(a.actors, func(x *actor) bool { return x.self.ID == id })
					if i < 0 || !a.actors[i].killed.Load() {
						t.Errorf("%s computes a part of %s, which is not gone", x.self.ID, id)
					}
				}
				if step, samples := part(); slices.Contains(r.Samples, 33) {
					of = append(of, r.Of)
					if r.Step != step || !slices.Equal(r.Samples, samples) {
						t.Errorf("step %d, samples %d, want %d, %d", r.Step, r.Samples, step, samples)
					}
				}
				return func() {
					mu.Lock()
					defer mu.Unlock()
					open--
				}, nil
			}
			a.play(t)
			a.check(t, fmt.Sprintf("%d deaths", most))
			if len(of) != most || len(of[most-1]) != most || open > most-1 {
				t.Errorf("%d deaths: %d requests of %v, %d open", most, len(of), of, open)
			}
		})
	}
}

// A refusal ends the training at all members, with the text.
func TestRefusedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := deadly(4, 1, 33)
		a.retry = func(_ *actor, r elastic.Retry) (func(), error) {
			if slices.Contains(r.Samples, 33) {
				return func() {}, errors.New("sample 33 is bad")
			}
			return func() {}, nil
		}
		a.play(t)
		for _, x := range a.actors {
			if !x.killed.Load() && (!errors.Is(x.err, collective.ErrMistake) || !strings.Contains(x.err.Error(), "sample 33 is bad") || x.result != nil) {
				t.Errorf("%s: %v, result %v", x.self.ID, x.err, x.result)
			}
		}
	})
}
