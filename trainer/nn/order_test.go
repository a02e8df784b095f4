package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer"
)

// noting is a layer that records the calls to it.
type noting struct {
	name  string
	notes *[]string
	p     []trainer.Param
}

func (n *noting) params() []trainer.Param { return n.p }

func (n *noting) note(what string) { *n.notes = append(*n.notes, what+" "+n.name) }

func (n *noting) forward(x []float32, _ int, _ paramWaiter) []float32 {
	n.note("forward")
	return x
}

func (n *noting) accumulate(_ []float32, _ [][]float32, reporter gradReporter) {
	n.note("accumulate")
	for i := range slices.Backward(n.p) {
		reporter.report(i, 0)
	}
}

func (n *noting) shareParams() layer { return n }

func (n *noting) size() int { return 0 }

func (n *noting) backward(dy []float32) []float32 {
	n.note("backward")
	return dy
}

// The gradient of a layer's parameters is complete before the computation of the gradient of its
// inputs begins. This computation can then overlap with communication. The gradient of inputs is
// not computed if no earlier layer has parameters.
func TestGradientsAreCompleteEarly(t *testing.T) {
	var notes []string
	layers := []Layer{}
	for i, params := range []int{0, 2, 0, 1} {
		layers = append(layers, Layer{func(b builder) (layer, Shape, error) {
			l := &noting{name: fmt.Sprint(i), notes: &notes}
			for range params {
				l.p = append(l.p, zeros(b.name, 1))
			}
			return l, b.in, nil
		}})
	}
	n, err := New(Table{Inputs: [][]float32{{1, 2}}, Classes: []int{0}}, Shape{C: 2, H: 1, W: 1}, 1, layers...)
	if err != nil {
		t.Fatal(err)
	}
	done := func(i, _ int) { notes = append(notes, fmt.Sprint("done ", i)) }
	if _, err := n.Model().Accumulate(make([][]float32, 3), []int{0}, done); err != nil {
		t.Fatal(err)
	}
	want := []string{"forward 0", "forward 1", "forward 2", "forward 3",
		"accumulate 3", "done 2", "backward 3", "accumulate 2", "backward 2", "accumulate 1", "done 1", "done 0"}
	if !slices.Equal(notes, want) {
		t.Errorf("%q, want %q", notes, want)
	}
}

// A part of a gradient is complete when it is reported. Together the parts are the whole gradient.
func TestPiecesAreComplete(t *testing.T) {
	in := Shape{C: 600, H: 1, W: 1}
	x := make([]float32, in.Size())
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	n, err := New(Table{Inputs: [][]float32{x, x}, Classes: []int{1, 2}}, in, 1, Dense(130), ReLU(), Dense(5))
	if err != nil {
		t.Fatal(err)
	}
	var whole, grad, seen [][]float32
	for _, p := range n.Params() {
		whole, grad, seen = append(whole, make([]float32, len(p.Data))), append(grad, make([]float32, len(p.Data))), append(seen, nil)
	}
	if _, err := n.Model().Accumulate(whole, []int{0, 1}, nil); err != nil {
		t.Fatal(err)
	}
	var order [][2]int
	_, err = n.Model().Accumulate(grad, []int{0, 1}, func(i, from int) {
		order = append(order, [2]int{i, from})
		seen[i] = slices.Concat(grad[i][from:len(grad[i])-len(seen[i])], seen[i])
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][2]int{{3, 0}, {2, 0}, {1, 0}, {0, 512 * 130}, {0, 384 * 130}, {0, 256 * 130}, {0, 128 * 130}, {0, 0}}; !slices.Equal(order, want) {
		t.Errorf("reported %v, want %v", order, want)
	}
	for i := range whole {
		if !slices.Equal(seen[i], whole[i]) || !slices.Equal(grad[i], whole[i]) {
			t.Errorf("%s: a part was reported too early, or the gradient is wrong", n.Params()[i].Name)
		}
	}
}
