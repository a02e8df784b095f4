package elastic_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
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

// For a value that cannot be a State, the loop ends at its begin with an error that names the
// value.
func TestNoState(t *testing.T) {
	step := int64(0)
	var none *mat.Dense
	for want, state := range map[string]elastic.State{
		"vector 1 has the type []bool, want a slice of int, int": elastic.Vectors(&step, []float64{1}, []bool{true}),
		"vector 0 has the type *[]float64":                       elastic.Vectors(&step, &[]float64{1}),
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
