package elastic_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// copyState saves one state and loads it into another.
func copyState(t *testing.T, from, to elastic.State) {
	t.Helper()
	var b bytes.Buffer
	if err := from.Save(&b); err != nil {
		t.Fatal(err)
	}
	if err := to.Load(&b); err != nil {
		t.Fatal(err)
	}
	if from.Step() != to.Step() {
		t.Errorf("step %d became %d", from.Step(), to.Step())
	}
}

// Load copies a state of vectors into the existing slices of the receiver.
func TestVectors(t *testing.T) {
	stepA, stepB := int64(7), int64(0)
	w, m, h, n := []float32{1, -2}, []int64{3}, []collective.BFloat16{4, 5, 6}, []int{-8, 1 << 30}
	w2, m2, h2, n2 := make([]float32, 2), make([]int64, 1), make([]collective.BFloat16, 3), make([]int, 2)
	copyState(t, elastic.Vectors(&stepA, w, m, h, n), elastic.Vectors(&stepB, w2, m2, h2, n2))
	if !slices.Equal(w, w2) || !slices.Equal(m, m2) || !slices.Equal(h, h2) || !slices.Equal(n, n2) || stepB != 7 {
		t.Errorf("got %v %v %v %v after %d", w2, m2, h2, n2, stepB)
	}
}

// Load returns an error for every truncated state, and for a state of other vectors.
func TestVectorsDamaged(t *testing.T) {
	step := int64(7)
	var b bytes.Buffer
	if err := elastic.Vectors(&step, []float64{1, 2}, []uint8{3}).Save(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range len(whole) {
		if err := elastic.Vectors(&step, []float64{1, 2}, []uint8{3}).Load(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d of %d bytes were loaded", n, len(whole))
		}
	}
	for i, other := range []elastic.State{
		elastic.Vectors(&step, []float64{1, 2, 3}, []uint8{3}), elastic.Vectors(&step, []float64{1, 2}),
		elastic.Vectors(&step, []float64{1, 2}, []uint8{3}, []uint8{}),
	} {
		if err := other.Load(bytes.NewReader(whole)); err == nil {
			t.Errorf("state %d took another's", i)
		}
	}
}

// Matrices of gonum keep their memory, and a random generator its position.
func TestBinary(t *testing.T) {
	stepA, stepB := int64(7), int64(0)
	a, b := mat.NewDense(2, 2, []float64{1, 2, 3, 4}), mat.NewDense(2, 2, nil)
	memory := b.RawMatrix().Data
	r, q := rand.NewPCG(1, 2), rand.NewPCG(3, 4)
	r.Uint64()
	copyState(t, elastic.Binary(&stepA, a, r), elastic.Binary(&stepB, b, q))
	if !mat.Equal(a, b) || stepB != 7 || r.Uint64() != q.Uint64() {
		t.Errorf("got %v after step %d", mat.Formatted(b), stepB)
	}
	if memory[3] != 4 {
		t.Errorf("the matrix has other memory: %v", memory)
	}
}

// layer is a part of a model made of structs.
type layer struct {
	Name    string
	Weights []float64
	Dense   *mat.Dense
	At      time.Time
	Next    *layer
}

// A copy of a Gob state equals the original.
func TestGob(t *testing.T) {
	stepA, stepB := int64(7), int64(0)
	a := layer{Name: "a", Weights: []float64{1, 0}, Dense: mat.NewDense(1, 1, []float64{5}), Next: &layer{Name: "b"}}
	b := layer{Name: "other", Weights: []float64{7, 7, 7}, Next: &layer{Weights: []float64{1}, Next: &layer{}}}
	copyState(t, elastic.Gob(&stepA, &a), elastic.Gob(&stepB, &b))
	if fmt.Sprint(a.Name, a.Weights, a.Next.Name) != fmt.Sprint(b.Name, b.Weights, b.Next.Name) || !mat.Equal(a.Dense, b.Dense) || b.Next.Weights != nil {
		t.Errorf("got %+v", b)
	}
}

// A vector given by its address is the slice that the variable holds at each use. A slice of another
// length is neither saved nor loaded.
func TestAddressOfVector(t *testing.T) {
	stepA, stepB := int64(7), int64(0)
	a, b := []float64{0, 0}, []float64{0, 0}
	from, to := elastic.Vectors(&stepA, &a), elastic.Vectors(&stepB, &b)
	a, b = []float64{1, 2}, []float64{3, 4}
	now := b
	copyState(t, from, to)
	if !slices.Equal(b, []float64{1, 2}) || !slices.Equal(now, b) {
		t.Errorf("got %v in %v", b, now)
	}
	var whole bytes.Buffer
	if err := from.Save(&whole); err != nil {
		t.Fatal(err)
	}
	for _, other := range [][]float64{nil, {1}, {1, 2, 3}} {
		b = other
		if err := to.Save(io.Discard); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("float64[2]: its slice has %d elements now", len(other))) {
			t.Errorf("saved %v: %v", other, err)
		}
		if err := to.Load(bytes.NewReader(whole.Bytes())); err == nil {
			t.Errorf("loaded into %v", other)
		}
	}
}

// replacing is a program that replaces the slice of its state in each step. Its result, w[0], is the
// number of the steps after the constant ones.
type replacing struct {
	state    func(step *int64, w *[]float64) elastic.State
	swap     bool  // the loop has two slices in turn
	inPlace  bool  // the loop changes the slice in place instead
	constant int64 // number of steps that leave the values as they are
}

// The forms in which a program may give its slice.
func byAddress(step *int64, w *[]float64) elastic.State { return elastic.Vectors(step, w) }
func byValue(step *int64, w *[]float64) elastic.State   { return elastic.Vectors(step, *w) }
func byGob(step *int64, w *[]float64) elastic.State     { return elastic.Gob(step, w) }

// loop is the program. The ledger gets the steps and the value.
func (r replacing) loop(steps int64) func(ctx context.Context, g *elastic.Group, l *ledger) error {
	return func(ctx context.Context, g *elastic.Group, l *ledger) error {
		w, spare := make([]float64, 3), make([]float64, 3)
		for t := range g.Steps(ctx, r.state(&l.step, &w), steps) {
			wait(stepTime)
			sum := []float64{1, 1}
			if collective.AllReduce(ctx, t.Comm, sum, sum, collective.Average[float64]) != nil {
				continue
			}
			switch {
			case r.inPlace:
				spare = w
			case !r.swap:
				spare = make([]float64, 3)
			}
			if spare[0] = w[0]; l.step >= r.constant {
				spare[0] += sum[0]
			}
			w, spare = spare, w
			l.step++
		}
		l.sums[0] = int64(w[0])
		return g.Err()
	}
}

// right reports whether a result of the program after all of the given steps is right.
func (r replacing) right(m ending, steps int64) bool {
	return m.err == nil && m.ledger.step == steps && m.ledger.sums[0] == max(0, steps-r.constant)
}

// A program may replace a slice that it has given by its address: peers that come, and peers that
// were a step behind when another died, copy the present values.
func TestReplacedSlice(t *testing.T) {
	for _, p := range []replacing{{state: byAddress}, {state: byAddress, swap: true}, {state: byAddress, constant: 100}, {state: byGob}} {
		for at := range 12 {
			synctest.Test(t, func(t *testing.T) {
				r := startLoops(t, 3, uint64(at), p.loop(60))
				wait(100*time.Millisecond + time.Duration(at)*stepTime/4)
				r.Kill(1)
				late := r.Join()
				for i, m := range r.finish(t, 0, 2, late) {
					if !p.right(m, 60) {
						t.Errorf("%+v, at %d, peer %d: %v, %+v", p, at, i, m.err, m.ledger)
					}
				}
			})
		}
	}
}

// A newcomer is refused, with the remedy, if it would begin with the old memory of a replaced slice.
// The members go on, as their values are right. One line tells of the state that does not change.
func TestNewcomerToAReplacedSlice(t *testing.T) {
	for at := range 30 {
		synctest.Test(t, func(t *testing.T) {
			p := replacing{state: byValue}
			r := startLoops(t, 2, uint64(at), p.loop(60))
			wait(time.Duration(at) * stepTime)
			late := r.Join()
			all := r.finish(t, 0, 1, late)
			if !p.right(all[0], 60) || !p.right(all[1], 60) {
				t.Errorf("at %d, the members: %+v", at, all[:2])
			}
			if err := all[2].err; !errors.Is(err, elastic.ErrRefused) || !strings.HasSuffix(err.Error(), "elastic.Vectors(&step, &w)") || len(err.Error()) > 200 {
				t.Errorf("at %d, the newcomer: %v", at, err)
			}
			if lines := r.sink.of("unchanged"); len(lines) != 1 || lines[0].Step != 10 {
				t.Errorf("at %d: %+v", at, lines)
			}
		})
	}
}

// The memory of two slices that a loop swaps changes. A newcomer to such a state never ends with a
// wrong result: its state soon differs from the others' state, which ends the job.
func TestNewcomerToSwappedSlices(t *testing.T) {
	for at := range 30 {
		synctest.Test(t, func(t *testing.T) {
			p := replacing{state: byValue, swap: true}
			r := startLoops(t, 2, uint64(at), p.loop(60))
			wait(time.Duration(at) * stepTime)
			late := r.Join()
			for i, m := range r.finish(t, 0, 1, late) {
				if !p.right(m, 60) && (!errors.Is(m.err, collective.ErrMistake) || !strings.Contains(m.err.Error(), "elastic.Vectors(&step, &w)")) {
					t.Errorf("at %d, peer %d: %v, %+v", at, i, m.err, m.ledger)
				}
			}
		})
	}
}

// A member dies while it sends its k-th message, for every k in a few turns and their boundaries.
// Another one that was a step behind ends with an error rather than with the old memory of a replaced
// slice, and the result of the rest is right.
func TestStepBehindWithAReplacedSlice(t *testing.T) {
	p, refused := replacing{state: byValue}, 0
	for k := int64(1); k <= 30; k++ {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int64
			var r *run
			ready := make(chan struct{})
			r = startLoops(t, 3, uint64(k), func(ctx context.Context, g *elastic.Group, l *ledger) error {
				<-ready
				return p.loop(30)(ctx, g, l)
			})
			r.Network.KillWhen(func(m simnet.Message) bool {
				if m.Plane != simnet.Data || m.From != "member-1" || sent.Load() == 0 && m.Envelope.Call.Count != 2 || sent.Add(1) != k {
					return false
				}
				r.Kill(1)
				return true
			})
			close(ready)
			ended := 0
			for i, m := range r.finish(t, 0, 2) {
				switch {
				case p.right(m, 30):
					ended++
				case errors.Is(m.err, elastic.ErrRefused):
					refused++
				default:
					t.Errorf("k=%d, peer %d: %v, %+v", k, i, m.err, m.ledger)
				}
			}
			if ended == 0 {
				t.Errorf("k=%d: no peer has finished", k)
			}
		})
	}
	if refused == 0 {
		t.Error("no peer was a step behind")
	}
}

// A state that is constant for long gets one line and no error. Newcomers are let in if the state is
// given by its address, or once it has changed.
func TestConstantState(t *testing.T) {
	for _, c := range []struct {
		p       replacing
		lines   int
		refused bool
	}{
		{replacing{state: byAddress, constant: 100}, 1, false},
		{replacing{state: byGob, constant: 100}, 1, false},
		{replacing{state: byValue, constant: 100, inPlace: true}, 1, true},
		{replacing{state: byValue, constant: 15, inPlace: true}, 1, false},
		{replacing{state: byValue, constant: 5, inPlace: true}, 0, false},
	} {
		for _, join := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := startLoops(t, 3, 1, c.p.loop(60))
				wait(300 * time.Millisecond)
				peers := []int{0, 1, 2}
				if join {
					peers = append(peers, r.Join())
				}
				for i, m := range r.finish(t, peers...) {
					if i == 3 && c.refused {
						if !errors.Is(m.err, elastic.ErrRefused) {
							t.Errorf("%+v: %v", c, m.err)
						}
					} else if !c.p.right(m, 60) {
						t.Errorf("%+v, peer %d: %v, %+v", c, i, m.err, m.ledger)
					}
				}
				if lines := r.sink.of("unchanged"); len(lines) != c.lines {
					t.Errorf("%+v: %+v", c, lines)
				}
			})
		}
	}
}

// For a value that cannot be a State, the loop ends at its begin with an error that names the
// value.
func TestNoState(t *testing.T) {
	step := int64(0)
	var none *mat.Dense
	for want, state := range map[string]elastic.State{
		"vector 1 has the type []bool, want a slice of int, int": elastic.Vectors(&step, []float64{1}, []bool{true}),
		"vector 0 has the type *[1]float64, want a slice of int": elastic.Vectors(&step, &[1]float64{1}),
		"vector 0 has the type *[]float64, want a slice of int":  elastic.Vectors(&step, (*[]float64)(nil)),
		"vector 0 has the type <nil>, want a slice of int":       elastic.Vectors(&step, nil),
		"the pointer to the step is nil":                         elastic.Vectors(nil, []float64{1}),
		"the state has no variable besides the step":             elastic.Vectors(&step),
		"value 0 is nil":                                         elastic.Binary(&step, none),
		"value 0 is a int, want a pointer":                       elastic.Gob(&step, 5),
		"struct { M map[int]int }.M is a map[int]int: the order": elastic.Gob(&step, &struct{ M map[int]int }{}),
		".F is a func(): it cannot be copied":                    elastic.Gob(&step, &struct{ F func() }{}),
		"is a interface {}: it cannot be copied":                 elastic.Gob(&step, &[]any{}),
		".hidden is not exported":                                elastic.Gob(&step, &struct{ hidden int }{}),
		"the state is a nil *elastic_test.counter":               (*counter)(nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := startLoops(t, 1, 1, func(ctx context.Context, g *elastic.Group, _ *ledger) error {
				for range g.Steps(ctx, state, 5) {
					t.Errorf("%s: a turn", want)
				}
				return g.Err()
			})
			if err := r.finish(t, 0)[0].err; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// Loops over every kind of state continue with the right sums when a peer dies and another joins.
func TestKindsOfStates(t *testing.T) {
	type model struct {
		Step int64
		W    []float64
		M    *mat.Dense
	}
	for name, state := range map[string]func(m *model) elastic.State{
		"address": func(m *model) elastic.State { return elastic.Vectors(&m.Step, &m.W, m.M.RawMatrix().Data) },
		"vectors": func(m *model) elastic.State { return elastic.Vectors(&m.Step, m.W, m.M.RawMatrix().Data) },
		"binary":  func(m *model) elastic.State { return elastic.Binary(&m.Step, m.M, mat.NewVecDense(len(m.W), m.W)) },
		"gob":     func(m *model) elastic.State { return elastic.Gob(&m.Step, &m.W, &m.M) },
		"whole":   func(m *model) elastic.State { return elastic.Gob(&m.Step, m) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
				m := &model{W: []float64{1, float64(g.Self().Index)}, M: mat.NewDense(1, 2, nil)}
				for t := range g.Steps(ctx, state(m), 60) {
					wait(stepTime)
					sum := []float64{1}
					if collective.AllReduce(ctx, t.Comm, sum, sum, collective.Average[float64]) == nil {
						m.W[0] += sum[0]
						m.M.Set(0, 1, m.M.At(0, 1)+2*sum[0])
						m.Step++
					}
				}
				l.sums[0], l.sums[1] = int64(m.W[0]), int64(m.M.At(0, 1))
				return g.Err()
			})
			wait(200 * time.Millisecond)
			r.Kill(1)
			late := r.Join()
			for i, m := range r.finish(t, 0, 2, late) {
				if m.err != nil || !slices.Equal(m.ledger.sums, []int64{61, 120}) {
					t.Errorf("%s, peer %d: %v, %v", name, i, m.err, m.ledger.sums)
				}
			}
		})
	}
}

// The logged hash of vectors is the hash of their bytes alone. The reported result is logged with
// it.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 1, 1, func(ctx context.Context, g *elastic.Group, _ *ledger) error {
			step, w := int64(0), []uint8{0, 5}
			for t := range g.Steps(ctx, elastic.Vectors(&step, w), 3) {
				if err := collective.Barrier(ctx, t.Comm); err == nil {
					w[0]++
					step++
				}
			}
			nan := 0.0
			nan /= nan
			if err := g.Report(elastic.Result{Loss: &nan}); err == nil || !strings.Contains(err.Error(), "finite") {
				t.Errorf("reported NaN: %v", err)
			}
			if err := g.Report(elastic.Result{Accuracy: new(0.5)}); err != nil {
				return err
			}
			return g.Report(elastic.Result{Accuracy: new(0.75), Loss: new(0.25)})
		})
		if err := r.finish(t, 0)[0].err; err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte{3, 5})
		want := "done steps=3 peers=1 accuracy=0.7500 loss=0.25 sha256=" + hex.EncodeToString(hash[:])
		if all := r.sink.of("done"); len(all) != 1 || all[0].Body.(event.Done).Line() != want {
			t.Errorf("got %+v, want %q", all, want)
		}
	})
}

// For any bytes Load either returns an error, or leaves a state with a valid step that can be
// saved.
func FuzzLoad(f *testing.F) {
	states := func() []elastic.State {
		step := int64(0)
		return []elastic.State{
			elastic.Vectors(&step, []float64{1, 2}, []uint8{3}),
			elastic.Binary(&step, rand.NewPCG(1, 2)),
			elastic.Gob(&step, &layer{Name: "a", Weights: []float64{1}}),
		}
	}
	for _, s := range states() {
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range states() {
			if err := s.Load(bytes.NewReader(b)); err != nil {
				continue
			}
			if s.Step() < 0 {
				t.Errorf("a state after step %d", s.Step())
			}
			if err := s.Save(io.Discard); err != nil {
				t.Errorf("was loaded and cannot be saved: %v", err)
			}
		}
	})
}
