package nn

import "testing"

// A convolution splits a call with many samples into several blocks. The result is the same as with calls of one sample each.
func TestManySamplesAtOnce(t *testing.T) {
	in := Shape{1, 28, 28}
	n, err := New(stripes(in, 10), in, 3, Conv(12, 5), Pool(), ReLU(), Conv(6, 5), Pool(), ReLU(), Dense(3))
	if err != nil {
		t.Fatal(err)
	}
	together, single := gradientsOf(n), gradientsOf(n)
	all := []int{3, 0, 9, 4, 1, 7, 2, 8, 6, 5}
	got, err := n.Model().Accumulate(together, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for range n.workspaces[0].layers[0].(*conv).blocks {
		blocks++
	}
	if blocks < 3 {
		t.Errorf("%d blocks, want three: this shows nothing", blocks)
	}
	want := 0.0
	for _, i := range all {
		loss, err := n.Model().Accumulate(single, []int{i}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want += loss
	}
	if d := got - want; d < -1e-4 || d > 1e-4 {
		t.Errorf("loss %v, one by one %v", got, want)
	}
	for i := range together {
		for k, v := range together[i] {
			if d := v - single[i][k]; d < -1e-3 || d > 1e-3 {
				t.Fatalf("gradient %d of %s is %v, one by one %v", k, n.params[i].Name, v, single[i][k])
			}
		}
	}
}

// Layers use as much work space per sample as their size method says.
func TestMostSamplesFitsTheMemory(t *testing.T) {
	in := Shape{1, 16, 16}
	data := Table{Inputs: [][]float32{make([]float32, in.Size())}, Classes: []int{0}}
	n, err := New(data, in, 1, Conv(4, 5), Pool(), ReLU(), Conv(6, 3), ReLU(), Dense(20), ReLU(), Dense(3))
	if err != nil {
		t.Fatal(err)
	}
	const samples = 3
	if _, err := n.Model().Accumulate(gradientsOf(n), []int{0, 0, 0}, nil); err != nil {
		t.Fatal(err)
	}
	kept := len(n.workspaces[0].batch.inputs)
	for i, l := range n.workspaces[0].layers {
		size := 0
		switch l := l.(type) {
		case *conv:
			size = len(l.y) + samples*l.in.Size() // every layer except the first has dx
		case *pool:
			size = len(l.from) + len(l.y) + len(l.dx)
		case *dense:
			size = len(l.y) + len(l.dx)
		}
		if want := samples * l.size(); size != want {
			t.Errorf("layer %d keeps %d elements of %d samples, and says %d", i, size, samples, want)
		}
		kept += size
	}
	if got, want := n.Model().MaxSamples, callBytes/4*samples/kept; got != want || got < 100 {
		t.Errorf("%d samples of a call, want %d", got, want)
	}
	huge, err := New(data, Shape{1, 4000, 4000}, 1, Dense(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := huge.Model().MaxSamples; got != 1 {
		t.Errorf("%d samples of a call where one is too much", got)
	}
}
