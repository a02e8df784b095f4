package ledger

// Weights are the weights of calls of the model: those of a contribution, of a rank, or of a step.
type Weights struct {
	// Sum has the weights that were given, and the number of samples of the other calls. It is in
	// fixed point, so it does not depend on the order of the calls or on the number of peers.
	Sum     Sum
	Given   bool // a call has given a weight above 0
	Skipped bool // a call has given the weight 0
	Counted bool // a call has given no weight, so it counts its samples
}

// WeightOf returns the weight that a call has given.
func WeightOf(w float64) Weights { return Weights{Sum: SumOf(w), Given: w > 0, Skipped: w == 0} }

// Count returns the weight of samples whose calls have given none.
func Count(samples int64) Weights {
	return Weights{Sum: Sum{Hi: samples}, Counted: samples > 0}
}

// Plus returns the weights of all calls of w and v.
func (w Weights) Plus(v Weights) Weights {
	return Weights{w.Sum.Plus(v.Sum), w.Given || v.Given, w.Skipped || v.Skipped, w.Counted || v.Counted}
}

// Differ reports whether the sum may differ from the number of samples.
func (w Weights) Differ() bool { return w.Given || w.Skipped }

// Mixed reports whether some calls have given a weight and others have not. A call that was skipped
// fits both.
func (w Weights) Mixed() bool { return w.Given && w.Counted }
