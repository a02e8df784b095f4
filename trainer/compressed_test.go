package trainer_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/optim"
)

// fading is a model whose gradients do not depend on its parameters, and are zero after fadeSteps steps. From then on only the
// remaining error feedback is sent. At the end the parameters are minus the sum of all mean gradients, so any lost or doubled
// part shows.
type fading struct {
	params []trainer.Param
	pace   time.Duration
	step   int64 // the open step
	mute   bool  // the gradients of this model are always zero
}

// fadeSteps is the number of steps with gradients. After fadedSteps further steps no error feedback remains.
const fadeSteps, fadedSteps = 7, 21

func newFading() *fading {
	m := &fading{pace: time.Millisecond}
	for i, n := range []int{3, 900, 1, 1500} {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (f *fading) Params() []trainer.Param { return f.params }

func (f *fading) Model() trainer.Model { return trainer.ModelOf(f) }

// sloped returns an element of the gradient in a step.
func sloped(step int64, i, j int) float64 {
	if step > fadeSteps {
		return 0
	}
	return math.Sin(float64(step)*3+float64(i*17+j*7)) * float64(1+j%9)
}

func (f *fading) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	<-time.After(f.pace)
	for i := len(grad) - 1; i >= 0; i-- {
		for j := range grad[i] {
			if !f.mute {
				grad[i][j] += float32(float64(len(samples)) * sloped(f.step, i, j))
			}
		}
		done(i)
	}
	return float64(len(samples)), nil
}

// fade returns the configuration of the job. Its passes have three steps, of which the last is short.
func fade(coding string) trainer.Config {
	cfg := churning(fadeSteps+fadedSteps, false)
	cfg.Gradients.Compression, cfg.Gradients.BucketBytes = coding, 4000
	cfg.Optimizer, cfg.Schedule = optim.SGD{}, optim.Constant(1)
	return cfg
}

// fading gives an actor a fading model. The function begin is called at each step.
func (a *actor) fading(begin func(step int64)) *fading {
	m := newFading()
	a.trained = m
	a.cfg.Hooks.OnBegin = func(step int64) {
		m.step = step
		if begin != nil {
			begin(step)
		}
	}
	return m
}

// conserved checks that the parameters of a survivor are minus the sum of the survivors'
// contributions.
func (a *arena) conserved(t *testing.T, about string) {
	t.Helper()
	a.check(t, about)
	part := make(map[int64]float64) // by step: fraction of the samples that the survivors contributed
	var m *fading
	for _, x := range a.actors {
		if x.killed.Load() {
			continue
		}
		m = x.trained.(*fading)
		for _, s := range x.steps {
			part[s.Step] += float64(s.ShareSamples) / float64(s.Samples)
		}
	}
	for i, p := range m.params {
		for j, got := range p.Data {
			want := 0.0
			for step := int64(1); step <= fadeSteps; step++ {
				want -= part[step] * sloped(step, i, j)
			}
			if math.Abs(float64(got)-want) > 0.02 {
				t.Fatalf("%s: element %d of parameter %d is %v, want %v", about, j, i, got, want)
			}
		}
	}
}

// Every part of the error feedback is sent later, and once. The peers have different speeds, the steps have different lengths,
// and a peer joins.
func TestCompressionHoldsBackAndLosesNothing(t *testing.T) {
	for _, coding := range []string{"none", "fp16", "bf16", "int8", "topk", "topk:0.01:2bit"} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, fade(coding))
			var begun atomic.Bool
			a.adjust = func(x *actor) {
				m := x.fading(func(step int64) {
					if step == 3 && begun.CompareAndSwap(false, true) {
						a.start(elastic.Member{ID: "newcomer", Index: 3}, nil)
					}
				})
				m.pace = time.Duration(10*(1+x.self.Index)) * time.Millisecond
			}
			a.play(t)
			a.conserved(t, coding)
			if last := a.actors[0].steps; last[len(last)-1].Peers != 4 {
				t.Errorf("%s: nobody has joined", coding)
			}
		})
	}
}

// In each run a peer dies just before one of its messages; many messages are tried. The peer contributes only zeros, so no error
// feedback is lost with it. The survivors reduce again, or learn of the commit from each other. The sums are the same as without
// the death.
func TestKillWithCompression(t *testing.T) {
	t.Parallel()
	stride := pick[int64](5, 1)
	for victim := range 3 {
		messages := int64(1 << 30)
		for k := int64(5); k <= messages; k += stride {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(3, fade("topk"))
				a.adjust = func(x *actor) {
					m := x.fading(func(step int64) {
						if x.self.Index == victim && step == fadeSteps+2 {
							messages = min(messages, x.sent.Load())
						}
					})
					if x.self.Index == victim {
						m.mute = true
						x.killAt.Store(k)
					}
				}
				a.play(t)
				a.conserved(t, fmt.Sprintf("rank %d killed at message %d", victim, k))
			})
		}
	}
}

// With other codings the victim's death loses little: the coding error of its own chunk.
func TestKillWithEveryCoding(t *testing.T) {
	for _, coding := range []string{"fp16", "bf16", "int8"} {
		for k := int64(20); k < 200; k += 23 {
			synctest.Test(t, func(t *testing.T) {
				cfg := churning(6, false)
				cfg.Gradients.Compression = coding
				a := newArena(3, cfg)
				a.adjust = func(x *actor) {
					if x.self.Index == 1 {
						x.killAt.Store(k)
					}
				}
				a.play(t)
				a.check(t, fmt.Sprintf("%s: rank 1 killed at message %d", coding, k))
			})
		}
	}
}

// A peer that leaves, or that the others have put out, logs how much error feedback is lost.
func TestGivingUpWhatWasHeldBack(t *testing.T) {
	for why, act := range map[string]func(x *actor){
		"leaving":                    func(x *actor) { x.group.Leave() },
		"taking the state of others": func(x *actor) { x.muted.Store(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := fade("topk")
			cfg.Steps = 80
			a := newArena(3, cfg)
			var lines atomic.Pointer[[]string]
			lines.Store(new([]string))
			a.adjust = func(x *actor) {
				m := x.fading(func(step int64) {
					if step == 5 && x.self.Index == 1 {
						act(x)
					}
				})
				m.pace = 50 * time.Millisecond
				if x.self.Index == 1 {
					x.cfg.Hooks.Log = func(line string) {
						all := append(*lines.Load(), line)
						lines.Store(&all)
					}
				}
			}
			a.play(t)
			x := a.actors[1]
			if errors.Is(x.err, elastic.ErrLeft) {
				x.killed.Store(true) // the peer has no result
			}
			a.check(t, why)
			if got := strings.Join(*lines.Load(), "\n"); !strings.Contains(got, why+": this peer discards the coding error of compression, of norm ") {
				t.Errorf("%s: the log has %q", why, got)
			}
		})
	}
}

// A peer with another coding is refused, with an error that names the setting.
func TestOtherCompressionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, churning(60, false))
		a.cfg.Gradients.Compression = "topk:0.10"
		a.adjust = func(x *actor) {
			x.model.pace = 10 * time.Millisecond
			switch x.self.Index {
			case 0:
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == 5 {
						a.start(elastic.Member{ID: "a-peer-that-rounds", Index: 2}, nil)
					}
				}
			case 1:
				x.cfg.Gradients.Compression = "topk:1e-1" // another spelling of the same coding
			case 2:
				x.cfg.Gradients.Compression = "int8"
			}
		}
		a.play(t)
		x := a.actors[2]
		if !errors.Is(x.err, elastic.ErrRefused) || !strings.Contains(x.err.Error(), "compression is topk:0.1") {
			t.Errorf("error %v", x.err)
		}
		x.killed.Store(true) // the peer has no result
		a.check(t, "somebody is refused")
	})
}

// Step reports and the event log have the numbers of bytes with and without compression.
func TestCompressionIsCounted(t *testing.T) {
	for coding, want := range map[string]float64{"none": 0, "fp16": 1.99, "bf16": 2, "int8": 3.9, "topk": 2.2} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, fade(coding))
			a.adjust = func(x *actor) { x.fading(nil) }
			a.play(t)
			a.check(t, coding)
			for _, s := range a.actors[0].steps {
				if coding == "none" && (s.Sent != 0 || s.Raw != 0) || coding != "none" && (s.Raw != 4*2404 || float64(s.Raw)/float64(s.Sent) < want) {
					t.Errorf("%s: step %d: sent %d for %d bytes", coding, s.Step, s.Sent, s.Raw)
				}
			}
			for i, e := range of[event.Step](&a.events, 0) {
				if s := a.actors[0].steps[i]; e.SentBytes != s.Sent || e.RawBytes != s.Raw {
					t.Errorf("%s: the log has %d and %d bytes, the report %d and %d", coding, e.SentBytes, e.RawBytes, s.Sent, s.Raw)
				}
			}
		})
	}
}

// With a sparse coding the first steps send more bytes than later steps.
func TestSparseCodingBeginsWithMore(t *testing.T) {
	const n = 5000
	synctest.Test(t, func(t *testing.T) {
		cfg := fade("topk")
		cfg.Steps, cfg.Gradients.BucketBytes = 70, 4*n // one bucket
		a := newArena(3, cfg)
		a.adjust = func(x *actor) {
			x.fading(nil).params = []trainer.Param{{Name: "wide", Shape: []int{n}, Data: make([]float32, n)}}
		}
		a.play(t)
		a.check(t, "wide")
		coding, err := compress.NewTopK(compress.DefaultFraction)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range a.actors[0].steps {
			if want := int64(2 * compress.At(coding, s.Step).Size(n)); s.Sent != want {
				t.Errorf("step %d: sent %d bytes, want %d", s.Step, s.Sent, want)
			}
		}
		if first, last := a.actors[0].steps[0].Sent, a.actors[0].steps[69].Sent; first <= last {
			t.Errorf("sent %d bytes in the first step, %d in the last", first, last)
		}
	})
}

// The error for an invalid setting contains the setting.
func TestCompressionThatIsNone(t *testing.T) {
	for coding, word := range map[string]string{"gzip": "Compression", "topk:2": "fraction", "int8": "Exact"} {
		cfg := churning(1, coding == "int8")
		cfg.Gradients.Compression = coding
		if err := trainer.Run(t.Context(), nil, newSlope().Model(), cfg); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %v, want %q in it", coding, err, word)
		}
	}
}
