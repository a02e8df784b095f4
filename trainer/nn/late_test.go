package nn

import (
	"fmt"
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

// lateNetworks returns networks whose layers defer none, some or all of their gradients. The name
// of a network lists the layers that defer gradients.
func lateNetworks(t *testing.T) map[string]*Network {
	t.Helper()
	in := Shape{1, 16, 16}
	data := stripes(in, 5)
	all := map[string]*Network{}
	for late, build := range map[string]func() (*Network, error){
		"[]":    func() (*Network, error) { return MLP(data, in, []int{30}, 3, 1) },
		"[2]":   func() (*Network, error) { return MLP(data, in, []int{400, 300}, 3, 1) },
		"[2 4]": func() (*Network, error) { return MLP(data, in, []int{300, 400, 200}, 3, 1) },
		"[3]": func() (*Network, error) {
			return New(data, in, 1, Conv(2, 5), Pool(), ReLU(), Conv(4, 3), ReLU(), Conv(2, 3), Dense(3))
		},
		"[3 5]": func() (*Network, error) {
			return New(data, in, 1, Conv(2, 5), Pool(), ReLU(), Conv(30, 3), ReLU(), Dense(300), ReLU(), Dense(3))
		},
	} {
		n, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if n.order(true); fmt.Sprint(n.deferred) != late {
			t.Fatalf("layers %v put off some, want %s", n.deferred, late)
		}
		all[late] = n
	}
	return all
}

// After a call of Order, gradients are reported in its order, and deferred gradients have the same bits. The first parameters are
// complete before the deferred parts.
func TestLateGradients(t *testing.T) {
	samples := []int{0, 1, 2, 3, 4}
	for late, n := range lateNetworks(t) {
		got, plain := gradientsOf(n), 0.0
		for _, ahead := range []bool{false, true, false} {
			order, want := n.Model().Order(ahead), got
			got = gradientsOf(n)
			var calls []trainer.Piece
			loss, err := n.Model().Accumulate(got, samples, func(i, from int) { calls = append(calls, trainer.Piece{Param: i, From: from}) })
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(order, calls) {
				t.Errorf("%s, ahead %t: order %v, calls %v", late, ahead, order, calls)
			}
			if last := order[len(order)-1] == (trainer.Piece{}); last != (!ahead || late == "[]") {
				t.Errorf("%s, ahead %t: order %v", late, ahead, order)
			}
			if !ahead && plain == 0 {
				plain = loss
				continue
			}
			if loss != plain {
				t.Errorf("%s, ahead %t: loss %v, %v before", late, ahead, loss, plain)
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s, ahead %t: the gradient of %s is another one", late, ahead, n.params[i].Name)
				}
			}
		}
	}
}

// Each row of a dense layer's weights whose input is not zero gets its gradient, in the deferred
// part of the matrix and in the other part.
func TestLateRows(t *testing.T) {
	for late, n := range lateNetworks(t) {
		for at, any := range n.workspaces[0].layers {
			l, ok := any.(*dense)
			if !ok {
				continue
			}
			grad, samples := gradientsOf(n), []int{0, 1, 2, 3, 4}
			if _, err := n.Model().Accumulate(grad, samples, nil); err != nil {
				t.Fatal(err)
			}
			dw := grad[n.first[at]]
			for row := range l.in {
				used := false
				for k := range samples {
					used = used || l.x[k*l.in+row] != 0
				}
				if of := dw[row*l.out : (row+1)*l.out]; used == (slices.Min(of) == 0 && slices.Max(of) == 0) {
					t.Fatalf("%s: row %d of layer %d has the gradient %v", late, row, at, of)
				}
			}
		}
	}
}

// A network waits for its parameters in the order in which sums arrive: one parameter after the
// other, each from its end to its beginning. It waits for all parameters before it requests the
// memory of gradients.
func TestForwardAsksInOrder(t *testing.T) {
	for _, n := range lateNetworks(t) {
		param, from, grad := 0, len(n.params[0].Data), gradientsOf(n)
		_, err := n.Gradient(trainer.NewBatch([][]int{{0, 1}}, trainer.Gate{
			Wait: func(i, first int) {
				if i == param+1 && from == 0 {
					param, from = i, len(n.params[i].Data)
				}
				if i != param || first >= from {
					t.Errorf("parameter %d was waited for from element %d on, after %d from %d on", i, first, param, from)
				}
				from = first
			},
			Grad: func(i int) []float32 {
				if param != len(n.params)-1 || from != 0 {
					t.Errorf("gradient %d before parameter %d from element %d on", i, param, from)
				}
				return grad[i]
			},
		}))
		if err != nil {
			t.Errorf("error %v", err)
		}
	}
}

// gradientsOf returns gradients of all parameters, set to zero.
func gradientsOf(n *Network) (grad [][]float32) {
	for _, p := range n.params {
		grad = append(grad, make([]float32, len(p.Data)))
	}
	return grad
}
