package optim

// Updater updates the parameters of a model by code of the program, for example by the optimizer of
// another framework, in place of an Optimizer and a Schedule (Model.Updater of package trainer). The
// goroutine of trainer.Run makes all calls, never during a call of Gradient.
type Updater interface {
	// Apply updates the parameters with the mean gradient of the step that c describes, by parameter,
	// which it must not change. Model.Grads, if set, has a copy, which it may change. Equal parameters, states
	// and means must give equal parameters and states, bit for bit, because each peer applies each
	// step. After an error the training ends at this peer.
	Apply(c Commit, mean [][]float32) error
	// Save returns what Apply needs besides the parameters, for a peer that joins and for
	// checkpoints. The caller owns the result. Peers whose parameters or states differ when the job
	// begins take those of the lowest rank.
	Save() ([]byte, error)
	// Load replaces the state with one that another peer, or a checkpoint, has saved. The parameters
	// are those of the same step. The bytes come from outside: Load must not execute them.
	Load(state []byte) error
}

// Teller is an Updater that knows figures of a step for the event log.
type Teller interface {
	Updater
	// Figures returns the learning rate of the step for which Apply was called last, 0 if it is unknown, and other figures
	// by name. Each call of Apply makes a new map, which nobody changes afterwards.
	Figures() (rate float64, metrics map[string]float64)
}

// Commit describes a step that is being committed, alike at all peers.
type Commit struct {
	Step    int64   // from 1
	Epoch   uint64  // in which the step is committed
	Peers   int     // that contributed
	Samples int64   // in the step
	Weight  float64 // of the samples: their number, or the sum of the weights that the model gave
	Loss    float64 // mean over the samples by weight, before the step
}

// External is the Optimizer that stands for an Updater: it has no state, and Update leaves the
// parameters as they are.
type External struct{}

// Slots returns 0.
func (External) Slots() int { return 0 }

// Check returns nil.
func (External) Check() error { return nil }

// Update does nothing.
func (External) Update(int64, float64, []float32, []float32, [][]float32) {}
