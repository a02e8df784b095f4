package nn

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer"
)

// stripes are samples of three classes.
func stripes(in Shape, samples int) (data Table) {
	for i := range samples {
		x := make([]float32, in.Size())
		for k := range x {
			x[k] = float32((i+1)*(k+3)%17)/16 - 0.5
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%3)
	}
	return data
}

// lateNetworks are some whose second layer puts off nothing, a part, or all of its gradient,
// with the number of rows that it puts off.
func lateNetworks(t *testing.T) map[int]*Network {
	t.Helper()
	in := Shape{1, 16, 16}
	data := stripes(in, 5)
	all := map[int]*Network{}
	for rows, build := range map[int]func() (*Network, error){
		0:  func() (*Network, error) { return MLP(data, in, []int{30}, 3, 1) },
		-1: func() (*Network, error) { return MLP(data, in, []int{400, 300}, 3, 1) },
		4:  func() (*Network, error) { return CNN(data, in, []int{2, 4}, 10, 3, 1) },
	} {
		n, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if rows < 0 {
			rows = n.lanes[0].layers[n.late].(halved).split()
		}
		all[rows] = n
	}
	return all
}

// Order is what AccumulatePieces tells, and gradients that are put off have the same bits.
func TestLateGradients(t *testing.T) {
	networks := lateNetworks(t)
	if len(networks) != 3 {
		t.Fatalf("networks %v, want one that puts off a part", networks)
	}
	samples := []int{0, 1, 2, 3, 4}
	for rows, n := range networks {
		if (n.late >= 0) != (rows > 0) {
			t.Errorf("%d rows are put off, by layer %d", rows, n.late)
		}
		got, want := gradientsOf(n), gradientsOf(n)
		var calls []trainer.Piece
		loss, err := n.AccumulatePieces(got, samples, func(i, from int) { calls = append(calls, trainer.Piece{Param: i, From: from}) })
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(n.Order(), calls) {
			t.Errorf("%d rows: order %v, calls %v", rows, n.Order(), calls)
		}
		late := n.late
		n.late = -1
		plain, err := n.AccumulatePieces(want, samples, func(int, int) {})
		n.late = late
		if err != nil || plain != loss {
			t.Errorf("%d rows: loss %v, %v without, %v", rows, loss, plain, err)
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%d rows: the gradient of %s is another one", rows, n.params[i].Name)
			}
		}
	}
}

// Each row of a dense layer's weights whose input is not zero has a gradient, whichever part
// it is in.
func TestLateRows(t *testing.T) {
	for rows, n := range lateNetworks(t) {
		for at, any := range n.lanes[0].layers {
			l, ok := any.(*dense)
			if !ok {
				continue
			}
			grad, samples := gradientsOf(n), []int{0, 1, 2, 3, 4}
			if _, err := n.Accumulate(grad, samples, func(int) {}); err != nil {
				t.Fatal(err)
			}
			dw := grad[n.first[at]]
			for row := range l.in {
				used := false
				for k := range samples {
					used = used || l.x[k*l.in+row] != 0
				}
				if of := dw[row*l.out : (row+1)*l.out]; used == (slices.Min(of) == 0 && slices.Max(of) == 0) {
					t.Fatalf("%d rows late: row %d of layer %d has the gradient %v", rows, row, at, of)
				}
			}
		}
	}
}

// Parameters are asked for one after the other, each from its end to its beginning, as their
// sums come in.
func TestForwardAsksInOrder(t *testing.T) {
	for _, n := range lateNetworks(t) {
		param, from := 0, len(n.params[0].Data)
		err := n.Forward([]int{0, 1}, func(i, first int) error {
			if i == param+1 && from == 0 {
				param, from = i, len(n.params[i].Data)
			}
			if i != param || first >= from {
				t.Errorf("parameter %d was asked for from element %d on, after %d from %d on", i, first, param, from)
			}
			from = first
			return nil
		})
		if err != nil || param != len(n.params)-1 || from != 0 {
			t.Errorf("error %v, of %d parameters the last one was %d, from element %d on", err, len(n.params), param, from)
		}
	}
}

// gradientsOf returns zeros for all parameters.
func gradientsOf(n *Network) (grad [][]float32) {
	for _, p := range n.params {
		grad = append(grad, make([]float32, len(p.Data)))
	}
	return grad
}
