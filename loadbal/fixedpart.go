package loadbal

// fixedPart learns the overhead of one rank: how much of its compute time does not depend on the
// share. The unit of the overhead is the time of a microbatch: t = pace * (share + fixed). The
// number fixed stays the same when the whole rank gets slower or faster, so it has to be learned
// only once.
//
// Only a pair of successive steps with different shares gives information. Let db and dt be the
// differences of the share and of the time in such a pair, and b and t the means: then dt/t =
// db/(b+fixed). The estimate over all pairs, weighted by db and towards recent pairs, is
//
//	fixed = sum db(db - b dt/t) / sum db dt/t
//
// A regression line through all points would be wrong here. The shares are chosen so that times
// become equal: a rank that has become slower has fewer microbatches and takes the same time as
// before, so the line would show a time that does not depend on the share.
type fixedPart struct {
	parts    int64 // the estimate, in microbatches times fixedUnit
	num, den int64 // numerator and denominator of the estimate, times unit; old pairs decay
	// lastShare is the share in the step before; 0 before the first step.
	lastShare int64
	// lastTicks is the compute time of the step before.
	lastTicks int64
}

// fixedUnit is one microbatch in fixedPart.parts: 8 fractional bits.
const fixedUnit = 256

// observe records that the given share took the given ticks. noise is the relative error of such a
// measurement, times unit. It reports whether the estimate changed.
func (f *fixedPart) observe(share int, ticks, noise int64) bool {
	b0, t0, b1 := f.lastShare, f.lastTicks, int64(share)
	f.lastShare, f.lastTicks = b1, ticks
	db, b := b1-b0, (b0+b1+1)/2
	// The effect of a small change of the share is lost in the noise.
	if b0 == 0 || abs(db)*unit < b*max(unit/32, 2*noise) {
		return false
	}
	dt := quotient(ticks-t0, (ticks+t0)/2)
	if !plausible(db, b, dt) {
		return false
	}
	f.num = f.num*7/8 + db*(db*unit-dt*b)
	f.den = f.den*7/8 + db*dt
	// The prior is a fixed part of 0, as if one pair had shown it: a pair in which the share
	// changed by a 16th of b, or by three times the noise if this is more, and the time changed in
	// proportion. The weight of a pair grows with the square of the change.
	prior := b * max(unit/256, 9*noise*noise/unit)
	most := 64 * b * fixedUnit
	before := f.parts
	f.parts = most
	if den := (f.den + prior) / fixedUnit; den > 0 {
		f.parts = min(max(0, f.num/den), most)
	}
	return f.parts != before
}

// plausible reports whether the relative change dt of the time can come from the change db of the
// share b: within some noise dt lies between no change and a change in proportion. Otherwise the
// speed of the rank has changed as well, and the pair must not be used.
func plausible(db, b, dt int64) bool {
	const noise = unit / 8
	if db < 0 {
		db, dt = -db, -dt
	}
	return dt > -noise && dt < db*unit/b+noise
}

// pace returns the ticks per microbatch of a rank whose share took the given ticks.
func (f *fixedPart) pace(share int, ticks int64) int64 {
	return max(1, ticks*fixedUnit/(int64(share)*fixedUnit+f.parts))
}

// ticks returns the fixed part in ticks at a given pace, at most maxTime.
func (f *fixedPart) ticks(pace int64) int64 {
	if f.parts > 0 && pace > maxTime*fixedUnit/f.parts {
		return maxTime
	}
	return f.parts * pace / fixedUnit
}
