package loadbal

// fixedPart learns how much of a rank's time does not depend on its share, as a number
// of microbatches that take as long: t = pace * (share + fixed). That does not change
// when the whole rank gets slower or faster, so that it can be learned once.
//
// Only steps between which the share changed tell it. From the differences db and dt
// and the means b and t of two such steps follows dt/t = db/(b+fixed). With the sums
// over all of them, fixed = sum db(db - b dt/t) / sum db dt/t. Differences are used and
// not a line through all points, for shares are made such that times become equal: where
// speeds drift, slower means fewer microbatches in the same time, and a line through
// such points would say that time does not depend on the share.
type fixedPart struct {
	parts     int64 // of a microbatch, fixedUnit to one
	num, den  int64 // the sums, times unit
	lastShare int64
	lastTicks int64
}

// fixedUnit is one microbatch in fixedPart.parts.
const fixedUnit = 256

// observe takes a measurement with so much noise, relative to it and times unit. It
// reports whether parts changed.
func (f *fixedPart) observe(share int, ticks, noise int64) bool {
	b0, t0, b1 := f.lastShare, f.lastTicks, int64(share)
	f.lastShare, f.lastTicks = b1, ticks
	db, b := b1-b0, (b0+b1+1)/2
	// Smaller steps would only teach the noise.
	if b0 == 0 || abs(db)*unit < b*max(unit/32, 2*noise) {
		return false
	}
	dt := quotient(ticks-t0, (ticks+t0)/2)
	if !plausible(db, b, dt) {
		return false
	}
	f.num = f.num*7/8 + db*(db*unit-dt*b)
	f.den = f.den*7/8 + db*dt
	// That the fixed part is none counts as much as a step of a 16th of b which
	// changed the time in proportion, or one that is three times the noise: the part is
	// as the square of it.
	prior := b * max(unit/256, 9*noise*noise/unit)
	most := 64 * b * fixedUnit
	before := f.parts
	f.parts = most
	if den := (f.den + prior) / fixedUnit; den > 0 {
		f.parts = min(max(0, f.num/den), most)
	}
	return f.parts != before
}

// plausible reports whether a change dt of the time, relative to it, can come from the
// change of the share, up to some noise: between none and in proportion. Otherwise the
// speed has changed as well.
func plausible(db, b, dt int64) bool {
	const noise = unit / 8
	if db < 0 {
		db, dt = -db, -dt
	}
	return dt > -noise && dt < db*unit/b+noise
}

// pace is the ticks a microbatch takes if share of them took so many.
func (f *fixedPart) pace(share int, ticks int64) int64 {
	return max(1, ticks*fixedUnit/(int64(share)*fixedUnit+f.parts))
}

// ticks is the fixed part at a pace, at most maxTime.
func (f *fixedPart) ticks(pace int64) int64 {
	if f.parts > 0 && pace > maxTime*fixedUnit/f.parts {
		return maxTime
	}
	return f.parts * pace / fixedUnit
}
