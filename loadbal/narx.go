package loadbal

// Sizes of the network of narx.
const (
	narxLags   = 4
	narxInputs = narxLags + 4
	narxHidden = 6
	// narxRate is the learning rate, in parts of unit.
	narxRate = unit / 64
)

// narx predicts by a small neural network: a nonlinear autoregressive model with
// exogenous inputs, as LB-BSP uses. It says how much a rank's pace will change, relative
// to the last one. Its inputs are the last changes of the pace, how far the last one is
// from the periodic forecast and from its level, and the mean change of all ranks. One
// layer of hidden units bends the straight sum of the inputs.
//
// The network is one for all ranks, learns from each step while it predicts, and
// computes in fixed point, so that all peers have the same. At first its forecast is the periodic one.
type narx struct {
	periodic
	last     []int64
	inputs   [][narxInputs]int64 // those of the forecast that is to be judged
	forecast []int64
	direct   [narxInputs]int64
	hidden   [narxHidden][narxInputs]int64
	output   [narxHidden]int64
}

// Places of the inputs.
const (
	inSeason = narxLags + iota
	inLevel
	inAll
	inOne // always 1
)

func (x *narx) begin(paces []int64) {
	x.periodic.begin(paces)
	x.last, x.forecast = make([]int64, len(paces)), make([]int64, len(paces))
	copy(x.last, paces)
	x.inputs = make([][narxInputs]int64, len(paces))
	x.direct, x.output = [narxInputs]int64{inSeason: unit}, [narxHidden]int64{}
	// The hidden units must differ, or they would learn the same for ever.
	seed := uint64(1)
	for h := range x.hidden {
		for i := range x.hidden[h] {
			seed = seed*6364136223846793005 + 1442695040888963407
			x.hidden[h][i] = int64(seed>>48) - unit/2
		}
	}
}

func (x *narx) observe(paces []int64) (jumped bool) {
	jumped = x.periodic.observe(paces)
	all, measured := int64(0), int64(0)
	changes := make([]int64, len(paces))
	for r, pace := range paces {
		if pace > 0 && x.last[r] > 0 {
			changes[r] = clamp(quotient(pace-x.last[r], x.last[r]))
			all, measured = all+changes[r], measured+1
			x.learn(&x.inputs[r], changes[r])
		}
	}
	expected := x.periodic.next()
	for r, pace := range paces {
		if pace == 0 {
			continue
		}
		in := &x.inputs[r]
		copy(in[1:narxLags], in[:narxLags-1])
		in[0] = changes[r]
		in[inSeason] = clamp(quotient(expected[r]-pace, pace))
		in[inLevel] = clamp(quotient(x.ranks[r].level-pace, pace))
		in[inAll], in[inOne] = all/max(1, measured), unit
		x.last[r] = pace
	}
	return jumped
}

func (x *narx) next() []int64 {
	copy(x.forecast, x.periodic.next())
	for r, pace := range x.last {
		if x.inputs[r][inOne] != 0 { // there was a measurement
			y, _ := x.predict(&x.inputs[r])
			x.forecast[r] = max(1, scaled(pace, unit+max(y, -unit*7/8), unit))
		}
	}
	return x.forecast
}

func (x *narx) rescale(rank int, num, den int64) {
	x.periodic.rescale(rank, num, den)
	x.last[rank] = scaled(x.last[rank], num, den)
}

// predict is the change that the network expects, and what its hidden units say.
func (x *narx) predict(in *[narxInputs]int64) (y int64, units [narxHidden]int64) {
	for i, v := range in {
		y += x.direct[i] * v / unit
	}
	for h := range units {
		for i, v := range in {
			units[h] += x.hidden[h][i] * v / unit
		}
		units[h] = clamp(units[h])
		y += x.output[h] * units[h] / unit
	}
	return clamp(y), units
}

// learn takes a step down the gradient of the squared error. Errors are clipped, as
// are weights: a jump that nothing could have told must not undo what was learned.
func (x *narx) learn(in *[narxInputs]int64, change int64) {
	if in[inOne] == 0 {
		return
	}
	y, units := x.predict(in)
	e := max(-unit/8, min(unit/8, change-y)) * narxRate / unit
	for h := range units {
		back := e * x.output[h] / unit
		x.output[h] = clampWeight(x.output[h] + e*units[h]/unit)
		if abs(units[h]) == unit {
			continue // the unit is at its end: it has no slope
		}
		for i, v := range in {
			x.hidden[h][i] = clampWeight(x.hidden[h][i] + back*v/unit)
		}
	}
	for i, v := range in {
		x.direct[i] = clampWeight(x.direct[i] + e*v/unit)
	}
}

func clamp(v int64) int64 { return max(-unit, min(unit, v)) }

func clampWeight(v int64) int64 { return max(-4*unit, min(4*unit, v)) }
