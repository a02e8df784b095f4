package nn_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer/nn"
)

// disk is a Prefetcher one of whose samples cannot be read.
type disk struct {
	nn.Table
	bad   int
	err   error
	ahead []int
}

func (d *disk) Prefetch(_ context.Context, samples []int) { d.ahead = samples }
func (d *disk) Err() error                                { return d.err }

func (d *disk) Sample(dst []float32, i int) int {
	if i == d.bad {
		return -1
	}
	return d.Table.Sample(dst, i)
}

// A network prefetches its data. If a sample cannot be read, the network's error names the cause.
func TestDataOnDisk(t *testing.T) {
	table := nn.Table{Inputs: [][]float32{{1, 2}, {3, 4}, {5, 6}}, Classes: []int{0, 1, 0}}
	why := errors.New("the disk is gone")
	d := &disk{Table: table, bad: 2, err: why}
	network, err := nn.Softmax(d, nn.Shape{C: 1, H: 1, W: 2}, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	network.Model().Prefetch(t.Context(), []int{2, 0})
	if !slices.Equal(d.ahead, []int{2, 0}) {
		t.Errorf("read ahead: %v", d.ahead)
	}
	grad := [][]float32{make([]float32, 4), make([]float32, 2)}
	if _, err := network.Model().Accumulate(grad, []int{0, 1}, nil); err != nil {
		t.Error(err)
	}
	if _, err := network.Model().Accumulate(grad, []int{0, 2}, nil); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	d.err = nil
	if _, err := network.Model().Accumulate(grad, []int{2}, nil); err == nil {
		t.Error("no error for a class of -1")
	}

	memory, err := nn.Softmax(table, nn.Shape{C: 1, H: 1, W: 2}, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if memory.Model().Prefetch != nil {
		t.Error("data in memory is read ahead")
	}
}
