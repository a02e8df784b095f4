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
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/growth"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/optim"
)

// A state implements the interface through which elastic copies it.
var _ elastic.Replayer = (*state)(nil)

// witness is an observer that records its calls.
type witness struct{ told []string }

func (w *witness) superseded(by int64, whole bool) {
	w.told = append(w.told, fmt.Sprint("superseded by ", by, ", whole ", whole))
}

func (w *witness) advanced(was, o outcome) {
	w.told = append(w.told, fmt.Sprint("from ", was.Step, " to ", o.Step))
}

// told returns the calls of the observer since told was called last.
func told(s *state) []string {
	w := s.observer.(*witness)
	told := w.told
	w.told = nil
	return told
}

// newTestState returns a state with three parameters, and with 4 microbatches a step.
func newTestState(t testing.TB, exactly bool, change func(c *Config)) *state {
	t.Helper()
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3, Gradients: Gradients{Exact: exactly},
		Optimizer: optim.Adam{}, Schedule: optim.Constant(0.5)}
	if change != nil {
		change(&cfg)
	}
	p, params := newPlan(cfg), paramsOf(2, 3, 17)
	_, grads := newFloatAccumulator(newLayout(params, 1))
	var scale exact.Scale
	if exactly {
		var err error
		if scale, err = exact.New(len(params), p.mostMicrobatches()); err != nil {
			t.Fatal(err)
		}
	}
	s := newState(p, cfg, params, grads, scale)
	s.observer = &witness{}
	return s
}

// train commits the next step. The gradient depends on the step; in exact mode the scale is updated too.
func train(t testing.TB, s *state) {
	t.Helper()
	step := s.committed() + 1
	for i, v := range s.grads.staging.views {
		for j := range v {
			v[j] = float32((int(step)*7+i*3+j)%16-5) / 16
		}
	}
	exponents := slices.Clone(s.scale.Exponents())
	for i := range exponents {
		exponents[i] = int8(step) + int8(i)
	}
	var grown *growth.State
	if s.plan.grown != nil { // by a noise scale that rises
		after := s.plan.rule.After(*s.plan.grown, step, growth.Averages{Trace: float64(10 * step), Signal: 1 / 3.0, Batch: 20})
		grown = &after
	}
	next, err := s.plan.scale(exponents)
	if err == nil {
		p := s.plan.step(step)
		o := outcome{Step: step, Epoch: 1, Peers: 1, Samples: int64(p.end - p.first), Loss: ledger.SumOf(float64(step)), Shares: []share{{"me", [][2]int{{0, p.microbatches}}}}}
		err = s.commit(o, next, grown)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bytesOf returns the bytes that write writes.
func bytesOf(t testing.TB, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func saved(t testing.TB, r elastic.Replayer) []byte {
	return bytesOf(t, func(b *bytes.Buffer) error { return r.Save(b) })
}

func updated(t testing.TB, r elastic.Replayer) []byte {
	return bytesOf(t, func(b *bytes.Buffer) error { return r.Update(b) })
}

// Three ways lead to the same bytes: to commit a step, to apply another peer's update, and to load the whole state.
func TestEveryWayLeadsToTheSameState(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprint("exact ", exactly), func(t *testing.T) {
			leader, follower := newTestState(t, exactly, nil), newTestState(t, exactly, nil)
			for range 6 {
				train(t, leader)
				// Another peer requests the update while the next step is under way.
				update := updated(t, leader)
				for i := range leader.grads.staging.flat {
					leader.grads.staging.flat[i] = 1e9
				}
				if !bytes.Equal(update, updated(t, leader)) {
					t.Fatalf("step %d: the update changes with the reductions of the next step", leader.committed())
				}
				if err := follower.Apply(bytes.NewReader(update)); err != nil {
					t.Fatal(err)
				}
				late := newTestState(t, exactly, nil)
				if err := late.Load(bytes.NewReader(saved(t, leader))); err != nil {
					t.Fatal(err)
				}
				for name, other := range map[string]*state{"applied": follower, "loaded": late} {
					if !bytes.Equal(saved(t, other), saved(t, leader)) || other.Step() != leader.committed() {
						t.Fatalf("step %d: the state that was %s differs", leader.committed(), name)
					}
				}
				if !bytes.Equal(updated(t, follower), update) {
					t.Fatalf("step %d: a follower hands on another update", leader.committed())
				}
			}
		})
	}
}

// damaged returns variants of a good encoding, keyed by a part of the expected error.
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
		"15 samples, want 20":    bytes.Replace(good, []byte(`"Samples":20`), []byte(`"Samples":15`), 1),
		"microbatches [[4 4]]":   bytes.Replace(good, []byte(`[[0,4]]`), []byte(`[[4,4]]`), 1),
	}
}

// The observer's advanced is called after each commit, and after a copy from another peer has moved the state ahead, but not after a
// copy that failed. Its superseded is called before a copy changes the state.
func TestObserversAreTold(t *testing.T) {
	leader, r := newTestState(t, false, nil), newTestState(t, false, nil)
	want := func(s *state, want ...string) {
		t.Helper()
		if got := told(s); !slices.Equal(got, want) {
			t.Errorf("observed %q, want %q", got, want)
		}
	}
	train(t, leader)
	want(leader, "from 0 to 1")
	if err := r.Apply(bytes.NewReader(updated(t, leader))); err != nil {
		t.Fatal(err)
	}
	want(r, "superseded by 1, whole false", "from 0 to 1")
	train(t, leader)
	train(t, leader)
	state := saved(t, leader)
	if err := r.Load(bytes.NewReader(state[:len(state)-1])); err == nil || r.Step() != -1 || r.committed() != 1 {
		t.Errorf("half a state: error %v, step %d", err, r.Step())
	}
	want(r, "superseded by 3, whole true")
	if err := r.Load(bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	want(r, "superseded by 3, whole true", "from 1 to 3")
	if err := r.Apply(bytes.NewReader(updated(t, leader))); err == nil {
		t.Error("an update was applied twice")
	}
	want(r)
}

// While the next step has already changed parameters, digests and copies still show the committed step. A step that fails changes
// nothing.
func TestStateWhileTheNextStepIsUnderWay(t *testing.T) {
	s := newTestState(t, false, nil)
	train(t, s)
	state, digest := saved(t, s), s.digest()
	s.undo.reserve()
	sum := []float32{1, 2, 3}
	if err := s.undo.update(1, 1, sum, 2, func(param, mean []float32, slots [][]float32) {
		s.rules.optimizer.Update(2, 0.5, param, mean, slots)
	}); err != nil {
		t.Fatal(err)
	}
	s.digested = 0
	if !bytes.Equal(saved(t, s), state) || s.digest() != digest || s.undo.left(1) != 1 {
		t.Error("the saved state is not the committed one")
	}
	s.undo.rollback()
	if !bytes.Equal(saved(t, s), state) || s.params[1].Data[1] == 0 {
		t.Error("the step has left something behind")
	}
	s.invalidate()
	if s.Step() != -1 {
		t.Errorf("step %d of a state that is of no use", s.Step())
	}
}

// A wrong update leaves the state unchanged. Loading a wrong state changes nothing, or makes the state invalid until a good state is
// loaded.
func TestDamagedStatesAndUpdates(t *testing.T) {
	leader, r := newTestState(t, false, nil), newTestState(t, false, nil)
	train(t, leader)
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
	flipped[len(flipped)-1-4*22*2]++ // a byte in the last parameter
	if err := r.Load(bytes.NewReader(flipped)); err == nil || !strings.Contains(err.Error(), "digest") || r.Step() != -1 {
		t.Errorf("a flipped bit: error %v, step %d", err, r.Step())
	}
	if err := r.Load(bytes.NewReader(saved(t, leader))); err != nil || r.Step() != 1 {
		t.Errorf("a good state afterwards: error %v, step %d", err, r.Step())
	}
}

func TestUpdatesThatDoNotFit(t *testing.T) {
	leader, r := newTestState(t, false, nil), newTestState(t, false, nil)
	train(t, leader)
	first := updated(t, leader)
	train(t, leader)
	if err := r.Apply(bytes.NewReader(updated(t, leader))); err == nil || !strings.Contains(err.Error(), "is of step 2, but the state is of step 0") {
		t.Errorf("error %v", err)
	}
	inf := slices.Clone(first)
	binary.LittleEndian.PutUint32(inf[len(inf)-4:], math.Float32bits(float32(math.Inf(-1))))
	if err := r.Apply(bytes.NewReader(inf)); !errors.Is(err, ErrNotFinite) || r.committed() != 0 {
		t.Errorf("error %v", err)
	}
	other := newTestState(t, true, nil)
	if err := other.Apply(bytes.NewReader(first)); err == nil || !strings.Contains(err.Error(), "exponents") {
		t.Errorf("exact mode: error %v", err)
	}
}

// If the schedule fails, the commit fails before anything has changed.
func TestCommitChecksTheRateFirst(t *testing.T) {
	leader := newTestState(t, false, nil)
	train(t, leader)
	r := newTestState(t, false, func(c *Config) { c.Schedule = optim.Constant(math.NaN()) })
	before := saved(t, r)
	if err := r.Apply(bytes.NewReader(updated(t, leader))); !errors.Is(err, ErrNotFinite) || !bytes.Equal(before, saved(t, r)) {
		t.Errorf("error %v", err)
	}
}

// fuzzed adds good and damaged encodings to the seeds of a fuzz target.
func fuzzed(f *testing.F, encode func(testing.TB, elastic.Replayer) []byte) {
	leader := newTestState(f, false, nil)
	train(f, leader)
	good := encode(f, leader)
	f.Add(good)
	for _, bad := range damaged(good) {
		f.Add(bad)
	}
}

func FuzzApply(f *testing.F) {
	fuzzed(f, updated)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newTestState(t, false, nil)
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
		r := newTestState(t, false, nil)
		if r.Load(bytes.NewReader(b)) != nil {
			return
		}
		again := newTestState(t, false, nil)
		if err := again.Load(bytes.NewReader(saved(t, r))); err != nil || !bytes.Equal(saved(t, again), saved(t, r)) {
			t.Fatalf("the loaded state differs from the saved one: %v", err)
		}
	})
}
