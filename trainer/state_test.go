package trainer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/optim"
	"pgregory.net/rapid"
)

// A runner is what elastic levels.
var _ elastic.Replayer = (*runner)(nil)

// ramp is a model whose gradient depends on sample and element.
type ramp struct{ params []Param }

func (m ramp) Params() []Param { return m.params }

func (m ramp) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i, g := range grad {
		for j := range g {
			for _, s := range samples {
				g[j] += float32(s*7+i*3+j) / 16
			}
		}
		done(i)
	}
	return float64(len(samples)), nil
}

// newRamp is a runner without a group; in exact mode or not.
func newRamp(t *testing.T, exactly bool) *runner {
	return alone(t, ramp{paramsOf(2, 3, 17)}, func(c *Config) {
		c.Exact, c.Optimizer, c.Clip = exactly, optim.Adam{}, 3
	})
}

// solo commits the next step of a runner as a group of one does.
func (r *runner) solo(t *testing.T) {
	t.Helper()
	p := r.plan.step(r.committed + 1)
	for k := range p.microbatches {
		if err := r.open.add(r.model, p, []int{k}, ignore); err != nil {
			t.Fatal(err)
		}
	}
	switch sums := r.open.sums.(type) {
	case *plain:
		copy(r.bufs.staging.flat, sums.own.flat)
	case *quantised:
		copy(sums.all, sums.own)
		copy(sums.step, sums.peaks)
	}
	next, fits := r.open.sums.mean(int64(r.open.samples), r.pipeline.left)
	if !fits {
		r.open.reset(p.step, r.open.attempt+1, next, p.microbatches)
		r.solo(t)
		return
	}
	o := outcome{Step: p.step, Attempt: r.open.attempt, Epoch: 1, Peers: 1, Samples: int64(r.open.samples), Loss: r.open.loss,
		Shares: []share{{"me", r.open.held.Ranges()}}}
	if err := r.commit(o, next); err != nil {
		t.Fatal(err)
	}
}

// bytesOf returns what write writes.
func bytesOf(t testing.TB, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func saved(t testing.TB, r *runner) []byte {
	return bytesOf(t, func(b *bytes.Buffer) error { return r.Save(b) })
}

func updated(t testing.TB, r *runner) []byte {
	return bytesOf(t, func(b *bytes.Buffer) error { return r.Update(b) })
}

// Whether a peer commits a step itself, applies another's update or loads the whole
// state comes to the same bytes.
func TestEveryWayLeadsToTheSameState(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprint("exact ", exactly), func(t *testing.T) {
			leader, follower := newRamp(t, exactly), newRamp(t, exactly)
			for range 6 {
				leader.solo(t)
				// The next step is under way when somebody asks for the update.
				update := updated(t, leader)
				for i := range leader.bufs.staging.flat {
					leader.bufs.staging.flat[i] = 1e9
				}
				if !bytes.Equal(update, updated(t, leader)) {
					t.Fatalf("step %d: the update changes with the reductions of the next step", leader.committed)
				}
				if err := follower.Apply(bytes.NewReader(update)); err != nil {
					t.Fatal(err)
				}
				late := newRamp(t, exactly)
				if err := late.Load(bytes.NewReader(saved(t, leader))); err != nil {
					t.Fatal(err)
				}
				for name, other := range map[string]*runner{"applied": follower, "loaded": late} {
					if !bytes.Equal(saved(t, other), saved(t, leader)) || other.Step() != leader.committed {
						t.Fatalf("step %d: the state that was %s differs", leader.committed, name)
					}
				}
				if !bytes.Equal(updated(t, follower), update) {
					t.Fatalf("step %d: a follower hands on another update", leader.committed)
				}
			}
		})
	}
}

// A contribution to a step that is committed meanwhile is no longer needed; it did
// count, and its work is reported.
func TestApplyEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, false), newRamp(t, false)
	leader.solo(t)
	if err := r.open.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
		t.Fatal(err)
	}
	r.open.recomputed = 1
	if err := r.Apply(bytes.NewReader(updated(t, leader))); err != nil {
		t.Fatal(err)
	}
	if r.open.step != 2 || r.open.held.Len() != 0 || r.reporter.own.step != 1 || r.reporter.own.recomputed != 1 || r.last.Step != 1 {
		t.Errorf("contribution to step %d of %v, own work %+v", r.open.step, r.open.held.Ranges(), r.reporter.own)
	}
}

// What was computed from the state that is replaced goes with it.
func TestLoadEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, true), newRamp(t, true)
	start := saved(t, leader)
	leader.solo(t)
	for step, state := range [][]byte{start, saved(t, leader)} {
		if err := r.open.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(bytes.NewReader(state)); err != nil {
			t.Fatal(err)
		}
		if r.open.step != int64(step)+1 || r.open.held.Len() != 0 || r.open.samples != 0 || !r.open.scale.Equal(r.scale) {
			t.Errorf("step %d: contribution to step %d of %v", step, r.open.step, r.open.held.Ranges())
		}
	}
}

// damaged returns variants of a good encoding with words for what is wrong.
func damaged(good []byte) map[string][]byte {
	n := binary.LittleEndian.Uint32(good[8:])
	with := func(at int, b ...byte) []byte {
		out := slices.Clone(good)
		copy(out[at:], b)
		return out
	}
	return map[string][]byte{
		"read its beginning":     good[:7],
		"it begins with":         with(0, 'x'),
		"at most":                with(8, 255, 255, 255, 255),
		"read the header":        good[:12+n-1],
		"header: ":               with(12, 'x'),
		"unexpected EOF":         good[:len(good)-1],
		"bytes follow":           append(slices.Clone(good), 0),
		"have [9 3 17] elements": bytes.Replace(good, []byte(`"Sizes":[2,`), []byte(`"Sizes":[9,`), 1),
		"keeps 9 vectors":        bytes.Replace(good, []byte(`"Slots":2`), []byte(`"Slots":9`), 1),
		"15 samples, it has 20":  bytes.Replace(good, []byte(`"Samples":20`), []byte(`"Samples":15`), 1),
		"microbatches [[4 4]]":   bytes.Replace(good, []byte(`[[0,4]]`), []byte(`[[4,4]]`), 1),
	}
}

// Whatever is wrong with an update, the state is as it was; with a state, it is of no
// use until a good one was loaded, or as it was.
func TestDamagedStatesAndUpdates(t *testing.T) {
	leader, r := newRamp(t, false), newRamp(t, false)
	leader.solo(t)
	before := saved(t, r)
	for want, bad := range damaged(updated(t, leader)) {
		err := r.Apply(bytes.NewReader(bad))
		if err == nil || !strings.Contains(err.Error(), want) || !bytes.Equal(saved(t, r), before) {
			t.Errorf("update: error %v, want %q; or the state has changed", err, want)
		}
	}
	for want, bad := range damaged(saved(t, leader)) {
		if err := r.Load(bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("state: error %v, want %q", err, want)
		}
	}
	flipped := slices.Clone(saved(t, leader))
	flipped[len(flipped)-1-4*22*2]++ // in the last parameter
	if err := r.Load(bytes.NewReader(flipped)); err == nil || !strings.Contains(err.Error(), "digest") || r.Step() != -1 {
		t.Errorf("a flipped bit: error %v, step %d", err, r.Step())
	}
	if err := r.Load(bytes.NewReader(saved(t, leader))); err != nil || r.Step() != 1 {
		t.Errorf("a good state afterwards: error %v, step %d", err, r.Step())
	}
}

func TestUpdatesThatDoNotFit(t *testing.T) {
	leader, r := newRamp(t, false), newRamp(t, false)
	leader.solo(t)
	first := updated(t, leader)
	leader.solo(t)
	if err := r.Apply(bytes.NewReader(updated(t, leader))); err == nil || !strings.Contains(err.Error(), "is of step 2, the state after step 0") {
		t.Errorf("error %v", err)
	}
	inf := slices.Clone(first)
	binary.LittleEndian.PutUint32(inf[len(inf)-4:], math.Float32bits(float32(math.Inf(-1))))
	if err := r.Apply(bytes.NewReader(inf)); !errors.Is(err, ErrNotFinite) || r.committed != 0 {
		t.Errorf("error %v", err)
	}
	other := newRamp(t, true)
	if err := other.Apply(bytes.NewReader(first)); err == nil || !strings.Contains(err.Error(), "exponents") {
		t.Errorf("exact mode: error %v", err)
	}
}

// A schedule that fails does so before anything has changed.
func TestCommitChecksTheRateFirst(t *testing.T) {
	leader := newRamp(t, false)
	leader.solo(t)
	r := alone(t, ramp{paramsOf(2, 3, 17)}, func(c *Config) {
		c.Optimizer, c.Clip, c.Schedule = optim.Adam{}, 3, optim.Constant(math.NaN())
	})
	before := saved(t, r)
	if err := r.Apply(bytes.NewReader(updated(t, leader))); !errors.Is(err, ErrNotFinite) || !bytes.Equal(before, saved(t, r)) {
		t.Errorf("error %v", err)
	}
}

func TestSettingsTellJobsApart(t *testing.T) {
	value := func(change func(*Config)) map[string]string {
		m := make(map[string]string)
		for _, s := range alone(t, ramp{paramsOf(2, 3)}, change).held {
			m[s.Name] = s.Value
		}
		return m
	}
	base := value(nil)
	for name, change := range map[string]func(*Config){
		"samples":      func(c *Config) { c.Samples++ },
		"global batch": func(c *Config) { c.GlobalBatch-- },
		"microbatch":   func(c *Config) { c.Microbatch++ },
		"seed":         func(c *Config) { c.Seed++ },
		"optimizer":    func(c *Config) { c.Optimizer = optim.SGD{Momentum: 0.25} },
		"clip":         func(c *Config) { c.Clip = 1 },
		"exact":        func(c *Config) { c.Exact = true },
		"data":         func(c *Config) { c.DataHash = "x" },
		"steps":        func(c *Config) { c.Passes++ },
		"schedule":     func(c *Config) { c.Schedule = optim.Cosine(0.5, 0, 7) },
		"bucket bytes": func(c *Config) { c.BucketBytes++ },
	} {
		if got := value(change); got[name] == base[name] {
			t.Errorf("%s: the setting does not differ: %q", name, got[name])
		}
	}
	if got := value(func(c *Config) { c.Exact = true }); got["arithmetic"] == "" {
		t.Error("exact mode without a probe")
	}
	if a, b := (layout{params: paramsOf(2, 3)}), (layout{params: paramsOf(2, 3)}); newLayout(a.params, 1).describe() == newLayout(append(b.params[:1:1], Param{"b", []int{3, 1}, make([]float32, 3)}), 1).describe() {
		t.Error("shapes do not count")
	}
}

// The digest of large models is not taken after every step.
func TestDigestOfLargeModelsIsRarer(t *testing.T) {
	for size, every := range map[int]int64{10: 1, 1 << 18: 1, 1<<18 + 1: 2, 1 << 20: 4} {
		r := &runner{layout: newLayout(paramsOf(size), 1)}
		for step := int64(1); step < 9; step++ {
			if got := r.digestDue(step); got != (step%every == 0) {
				t.Errorf("%d elements: digest of step %d is due: %t", size, step, got)
			}
		}
	}
}

func TestSamplesInRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlan(Config{Samples: 103, GlobalBatch: 50, Microbatch: rapid.IntRange(1, 60).Draw(t, "micro"), Passes: 1}).step(rapid.Int64Range(1, 3).Draw(t, "step"))
		held, want := microbatches(p.microbatches), 0
		for k := range p.microbatches {
			if rapid.Bool().Draw(t, "held") {
				held.Add(k)
				want += len(p.appendSamples(nil, k))
			}
		}
		if got := p.samplesIn(held.Ranges()); got != want {
			t.Fatalf("%d samples in %v, want %d", got, held.Ranges(), want)
		}
	})
}

// fuzzed seeds a target with good encodings and damaged ones.
func fuzzed(f *testing.F, encode func(testing.TB, *runner) []byte) {
	leader := fuzzRunner(f)
	leader.last = outcome{Step: 1, Epoch: 1, Peers: 1, Samples: 20, Shares: []share{{"me", [][2]int{{0, 4}}}}}
	leader.committed = 1
	good := encode(f, leader)
	f.Add(good)
	for _, bad := range damaged(good) {
		f.Add(bad)
	}
}

func fuzzRunner(t testing.TB) *runner {
	r, err := newRunner(nil, ModelOf(ramp{paramsOf(2, 3, 17)}), Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3,
		Optimizer: optim.Adam{}, Schedule: optim.Constant(0.5)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func FuzzApply(f *testing.F) {
	fuzzed(f, updated)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := fuzzRunner(t)
		before := saved(t, r)
		if err := r.Apply(bytes.NewReader(b)); err != nil && !bytes.Equal(saved(t, r), before) {
			t.Fatalf("the state has changed, with the error %v", err)
		} else if err == nil && r.Step() != 1 {
			t.Fatalf("step %d", r.Step())
		}
	})
}

func FuzzLoad(f *testing.F) {
	fuzzed(f, saved)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := fuzzRunner(t)
		if r.Load(bytes.NewReader(b)) != nil {
			return
		}
		again := fuzzRunner(t)
		if err := again.Load(bytes.NewReader(saved(t, r))); err != nil || !bytes.Equal(saved(t, again), saved(t, r)) {
			t.Fatalf("what was loaded is not what is saved: %v", err)
		}
	})
}
