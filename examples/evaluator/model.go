package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
)

// Sizes of the data: images of side x side pixels, of the given number of kinds.
const (
	side        = 14
	kinds       = 10
	trainImages = 4800
	testImages  = 2000
	trainSeed   = 1
	testSeed    = 2
)

// images generates n labelled images: each is the pattern of its kind with noise.
func images(seed uint64, n int) nn.Table {
	patterns := rand.New(rand.NewPCG(7, 7))
	var pattern [kinds][side * side]float32
	for k := range pattern {
		for i := range pattern[k] {
			pattern[k][i] = patterns.Float32()
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	t := nn.Table{Inputs: make([][]float32, n), Classes: make([]int, n)}
	for i := range n {
		k := random.IntN(kinds)
		t.Classes[i], t.Inputs[i] = k, make([]float32, side*side)
		for j := range t.Inputs[i] {
			t.Inputs[i][j] = (pattern[k][j] + 4*random.Float32()) / 5
		}
	}
	return t
}

// newNetwork returns the model, with the same parameters in every process.
func newNetwork(data nn.Data) (*nn.Network, error) {
	return nn.Softmax(data, nn.Shape{C: 1, H: side, W: side}, kinds, 1)
}

// Weights is a message with the parameters of the model after a step.
type Weights struct {
	Step   int64
	Params [][]float32
}

// Score is the accuracy on the test set of the parameters after a step.
type Score struct {
	Step     int64
	Accuracy float64
	Images   int
}

// weightsOf returns the current parameters as a message. The message shares the memory of the
// parameters: a call copies it.
func weightsOf(step int64, params []trainer.Param) Weights {
	w := Weights{Step: step}
	for _, p := range params {
		w.Params = append(w.Params, p.Data)
	}
	return w
}

// evaluator is the state of the service. It exists only in the process of the service.
type evaluator struct {
	mu      sync.Mutex // a network is not safe for concurrent use
	network *nn.Network
	data    nn.Table
}

// score evaluates the model with the given weights on the test set.
func (e *evaluator) score(ctx context.Context, w Weights) (Score, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.network == nil {
		if err := e.load(); err != nil {
			return Score{}, err
		}
	}
	params := e.network.Params()
	if len(w.Params) != len(params) {
		return Score{}, fmt.Errorf("%d parameters, want %d", len(w.Params), len(params))
	}
	for i, p := range params {
		if len(w.Params[i]) != len(p.Data) {
			return Score{}, fmt.Errorf("parameter %s has %d numbers, want %d", p.Name, len(w.Params[i]), len(p.Data))
		}
		copy(p.Data, w.Params[i])
	}
	s, err := e.network.Evaluate(ctx, e.data, 0, e.data.Len())
	return Score{Step: w.Step, Accuracy: s.Accuracy(), Images: s.Samples}, err
}

// load generates the data and creates the network.
func (e *evaluator) load() (err error) {
	say("evaluator in process %d", os.Getpid())
	e.data = images(testSeed, testImages)
	e.network, err = newNetwork(e.data)
	return err
}
