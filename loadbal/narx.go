package loadbal

// Sizes of the network of narx.
const (
	narxLags   = 4 // number of last changes of the pace that are inputs
	narxInputs = narxLags + 4
	narxHidden = 6
	// narxRate is the learning rate, in parts of unit.
	narxRate = unit / 64
)

// narx predicts by a small neural network: a nonlinear autoregressive model with exogenous inputs,
// as LB-BSP uses for processors (see lbbspCPU). The output is the relative change of a rank's
// pace from the last step to the next one. The inputs are the last changes of the pace, the
// distances of the last pace from the periodic forecast and from the smoothed pace, the mean change of all
// ranks, and a constant. The output is a linear combination of the inputs plus one hidden layer of
// piecewise linear units.
//
// All ranks share one network. It learns online, by one gradient step per rank and training step.
// It computes in fixed point, so that it has the same weights at all peers. With its initial
// weights it forecasts as periodic does.
//
// The network has 62 weights. A step takes some 200 multiplications per rank: the prediction, and
// the prediction and the gradient step for the measurement that follows.
type narx struct {
	periodic
	last     []int64                       // last measured pace, by rank
	inputs   [][narxInputs]int64           // inputs of the present forecast, by rank; learn uses them after the next measurement
	forecast []int64                       // by rank
	direct   [narxInputs]int64             // weights from the inputs to the output
	hidden   [narxHidden][narxInputs]int64 // weights from the inputs to the hidden units
	output   [narxHidden]int64             // weights from the hidden units to the output
}

// Indexes of the inputs after the last changes.
const (
	inPeriodic = narxLags + iota // distance of the last pace from the periodic forecast
	inSmoothed                   // distance of the last pace from the smoothed pace
	inAll                        // mean change of all ranks
	inOne                        // constant 1 (bias); 0 before the first measurement
)

// begin implements forecaster. It resets the network.
func (n *narx) begin(paces []int64) {
	n.periodic.begin(paces)
	n.last, n.forecast = make([]int64, len(paces)), make([]int64, len(paces))
	copy(n.last, paces)
	n.inputs = make([][narxInputs]int64, len(paces))
	n.direct, n.output = [narxInputs]int64{inPeriodic: unit}, [narxHidden]int64{}
	// Hidden units with equal weights would have equal gradients and stay equal. So the weights are
	// pseudo-random, by a linear congruential generator with a fixed seed.
	seed := uint64(1)
	for h := range n.hidden {
		for i := range n.hidden[h] {
			seed = seed*6364136223846793005 + 1442695040888963407
			n.hidden[h][i] = int64(seed>>48) - unit/2
		}
	}
}

// observe implements forecaster. It learns from the difference between the forecast and the
// measurement, and then prepares the inputs of the next forecast.
func (n *narx) observe(paces []int64) (jumped bool) {
	jumped = n.periodic.observe(paces)
	all, measured := int64(0), int64(0)
	changes := make([]int64, len(paces))
	for r, pace := range paces {
		if pace > 0 && n.last[r] > 0 {
			changes[r] = clamp(quotient(pace-n.last[r], n.last[r]))
			all, measured = all+changes[r], measured+1
			n.learn(&n.inputs[r], changes[r])
		}
	}
	expected := n.periodic.next()
	for r, pace := range paces {
		if pace == 0 {
			continue
		}
		in := &n.inputs[r]
		copy(in[1:narxLags], in[:narxLags-1])
		in[0] = changes[r]
		in[inPeriodic] = clamp(quotient(expected[r]-pace, pace))
		in[inSmoothed] = clamp(quotient(n.ranks[r].smoothed-pace, pace))
		in[inAll], in[inOne] = all/max(1, measured), unit
		n.last[r] = pace
	}
	return jumped
}

// next implements forecaster. Ranks without a measurement have the periodic forecast.
func (n *narx) next() []int64 {
	copy(n.forecast, n.periodic.next())
	for r, pace := range n.last {
		if n.inputs[r][inOne] != 0 { // there was a measurement
			y, _ := n.predict(&n.inputs[r])
			n.forecast[r] = max(1, scaled(pace, unit+max(y, -unit*7/8), unit))
		}
	}
	return n.forecast
}

// rescale implements forecaster. The inputs are ratios and stay as they are.
func (n *narx) rescale(rank int, num, den int64) {
	n.periodic.rescale(rank, num, den)
	n.last[rank] = scaled(n.last[rank], num, den)
}

// predict returns the relative change that the network predicts, and the outputs of its hidden
// units, all times unit.
func (n *narx) predict(in *[narxInputs]int64) (y int64, units [narxHidden]int64) {
	for i, v := range in {
		y += n.direct[i] * v / unit
	}
	for h := range units {
		for i, v := range in {
			units[h] += n.hidden[h][i] * v / unit
		}
		units[h] = clamp(units[h])
		y += n.output[h] * units[h] / unit
	}
	return clamp(y), units
}

// learn does one step of gradient descent on the squared error of the prediction. Errors and
// weights are clipped, so that a jump that no input could predict does not undo the learning so
// far.
func (n *narx) learn(in *[narxInputs]int64, change int64) {
	if in[inOne] == 0 {
		return
	}
	y, units := n.predict(in)
	e := max(-unit/8, min(unit/8, change-y)) * narxRate / unit
	for h := range units {
		back := e * n.output[h] / unit
		n.output[h] = clampWeight(n.output[h] + e*units[h]/unit)
		if abs(units[h]) == unit {
			continue // the unit is saturated: its slope is 0
		}
		for i, v := range in {
			n.hidden[h][i] = clampWeight(n.hidden[h][i] + back*v/unit)
		}
	}
	for i, v := range in {
		n.direct[i] = clampWeight(n.direct[i] + e*v/unit)
	}
}

// clamp limits v to [-1, 1], times unit.
func clamp(v int64) int64 { return max(-unit, min(unit, v)) }

// clampWeight limits a weight to [-4, 4], times unit.
func clampWeight(v int64) int64 { return max(-4*unit, min(4*unit, v)) }
