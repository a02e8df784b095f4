package trainer_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// rounding is an Updater that changes the result of each update.
type rounding struct {
	*ownMomentum
	change func(float32) float32
}

func (r rounding) Apply(c optim.Commit, mean [][]float32) error {
	err := r.ownMomentum.Apply(c, mean)
	for _, p := range r.m.Params {
		for i, x := range p.Data {
			p.Data[i] = r.change(x)
		}
	}
	return err
}

// changing lets the Updater of a rank change the result of each update.
func (a *arena) changing(change func(rank int) func(float32) float32) {
	a.updated(func(x *actor, o *ownMomentum) {
		f, model := change(x.self.Index), x.trained
		if f == nil {
			return
		}
		x.trained = modelOf(func() trainer.Model {
			m := model.Model()
			m.Updater = rounding{o, f}
			return m
		})
	})
}

// Members whose updates round differently end with the weights of the others, whoever dies or joins, and each of them says so once.
func TestRoundingIsLevelled(t *testing.T) {
	t.Parallel()
	for seed := range pick(6, 2) {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(4, churning(int64(150+50*(seed%3)), false))
			odd := seed % 4
			a.changing(func(rank int) func(float32) float32 {
				if rank == odd || rank == 4 {
					return func(x float32) float32 { return math.Nextafter32(x, 100) }
				}
				return nil
			})
			adjust, joined := a.adjust, false
			a.adjust = func(x *actor) {
				adjust(x)
				if x.self.Index == (odd+1)%4 {
					x.killAt.Store(int64(300 * seed))
				}
				if x.self.Index == (odd+2)%4 {
					x.cfg.Hooks.OnBegin = func(step int64) {
						if step == int64(30+20*seed) && !joined {
							joined = true
							a.start(elastic.Member{ID: "late", Index: 4}, nil)
						}
					}
				}
			}
			a.play(t)
			a.ledger(t, "rounding")
			a.checkRounding(t, seed)
		})
	}
}

// checkRounding checks that the survivors have finished with equal weights, that some have said once that they round differently,
// and that nobody is accused.
func (a *arena) checkRounding(t *testing.T, seed int) {
	t.Helper()
	sha := ""
	for _, x := range a.actors {
		if x.killed.Load() {
			continue
		}
		if x.err != nil || sha != "" && x.result.SHA256 != sha {
			t.Fatalf("seed %d: %s: error %v, result %+v", seed, x.self.ID, x.err, x.result)
		}
		sha = x.result.SHA256
	}
	said := make(map[string]int)
	for _, e := range a.events.events {
		switch b := e.Body.(type) {
		case event.Resync:
			if strings.Contains(b.Reason, "rounds updates differently") {
				said[b.Who]++
			} else if !b.Void && b.Bytes == 0 {
				t.Errorf("seed %d: %s: %s", seed, b.Who, b.Reason)
			}
		case event.Forged:
			t.Errorf("seed %d: %s is accused: %s", seed, b.Who, b.Reason)
		}
	}
	for who, n := range said {
		if n != 1 {
			t.Errorf("seed %d: %s says it %d times", seed, who, n)
		}
	}
	if len(said) == 0 {
		t.Errorf("seed %d: no member says that it rounds differently", seed)
	}
}

// A member whose updates are wrong takes the state of the others twice, and leaves at the third time.
func TestWrongUpdatesAreNoRounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, churning(450, false))
		a.changing(func(rank int) func(float32) float32 {
			if rank != 1 {
				return nil
			}
			return func(x float32) float32 { return x + 0.01 }
		})
		a.play(t)
		for i, x := range a.actors {
			switch {
			case i == 1:
				if !errors.Is(x.err, trainer.ErrDiverged) || !strings.Contains(x.err.Error(), "2 times already") {
					t.Errorf("error %v", x.err)
				}
			case x.err != nil || x.result.Steps != 450 || x.result.SHA256 != a.actors[0].result.SHA256:
				t.Errorf("%s: error %v, result %+v", x.self.ID, x.err, x.result)
			}
		}
	})
}
