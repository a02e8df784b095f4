package elastic

import (
	"math/bits"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
)

const (
	// maxSamples bounds the samples of a step, so that reckoning with them cannot overflow.
	maxSamples = 1 << 46
	// piecesPerMember is the most pieces into which a step is cut for each member. A share is a
	// number of pieces. maxPieces bounds the pieces of all members, far below the numbers that
	// the policies of loadbal can compute with.
	piecesPerMember = 1024
	maxPieces       = 1 << 16
	// speedWindow is of how many steps a member remembers its speed. Their median does not
	// show a single step that something else has held up.
	speedWindow = 5
)

// division cuts the samples of steps among the members of a session. What it decides from has
// been gathered from all, so that all come to the same.
//
// The policy shares out pieces of the step: samples, or, where there are many, equal parts of
// the step of at most unit samples.
type division struct {
	policy  loadbal.Policy
	speeds  []int64          // of the members when they entered, in samples a second; 0 for unknown
	unit    int              // samples of a piece at most; 0 before the first Part
	ends    []int            // by rank, the end of its pieces; nil before the first Part
	shares  []int            // by rank, in pieces
	reports []loadbal.Report // of the step before, which the policy has not seen yet; or nil
	told    []int            // shares that the log has, in samples
	why     string           // the shares are others than before
	left    bool             // all have decided to leave the session

	due     bool // digests of states are compared at the next boundary
	written bool // a step of the session is in the log
}

// newDivision begins a session whose members have these speeds.
func newDivision(b Balance, speeds []int64) *division {
	policy, _ := loadbal.New(string(b)) // the name was checked
	return &division{policy: policy, speeds: speeds, why: "the members have changed"}
}

// divide cuts a step of n samples.
func (d *division) divide(n int) {
	if n == 0 || len(d.speeds) == 1 {
		return
	}
	if d.unit == 0 || ceilDiv(n, d.unit) > 2*maxPieces {
		d.unit = max(1, ceilDiv(n, min(piecesPerMember*len(d.speeds), maxPieces)))
		speeds := make([]int64, len(d.speeds))
		for rank, v := range d.speeds {
			speeds[rank] = v / int64(d.unit)
		}
		d.policy.Begin(speeds)
		d.reports = nil
	}
	shares, why := d.policy.Next(d.reports, ceilDiv(n, d.unit))
	if why != "" {
		d.why = why
	}
	d.shares, d.ends, d.reports = shares, make([]int, len(shares)), nil
	end := 0
	for rank, share := range shares {
		end += share
		d.ends[rank] = end
	}
}

// part returns the samples of a rank out of n, in the proportions of the last divide, which
// may have been of another number.
func (d *division) part(n, rank int) (lo, hi int) {
	if len(d.speeds) == 1 {
		return 0, n
	}
	if d.ends == nil { // of no samples
		return 0, 0
	}
	if rank > 0 {
		lo = d.bound(n, d.ends[rank-1])
	}
	return lo, d.bound(n, d.ends[rank])
}

// bound is where n samples are cut for so many pieces of all.
func (d *division) bound(n, pieces int) int {
	all := d.ends[len(d.ends)-1]
	high, low := bits.Mul64(uint64(n), uint64(pieces))
	q, _ := bits.Div64(high, low, uint64(all)) // pieces <= all, so that it fits
	return int(q)
}

// learn takes in how long the members computed in a step of which all had a part.
func (d *division) learn(all []record) {
	if d.shares == nil || all[0].samples <= 0 {
		return
	}
	d.reports = make([]loadbal.Report, len(all))
	for rank, r := range all {
		d.reports[rank] = loadbal.Report{Share: d.shares[rank], Micros: r.micros}
	}
}

// forecast is how long a rank should compute in the open step; 0 if that is not known.
func (d *division) forecast(rank int) time.Duration {
	if d.shares == nil {
		return 0
	}
	return time.Duration(d.policy.Forecast()[rank]) * time.Microsecond
}

// changed returns what the log is to be told of the shares of a step of n samples, or nil.
func (d *division) changed(n int) *event.Shares {
	if d.why == "" || n <= 0 || d.shares == nil {
		return nil
	}
	now := make([]int, len(d.shares))
	for rank := range now {
		lo, hi := d.part(n, rank)
		now[rank] = hi - lo
	}
	why := d.why
	d.why = ""
	if slices.Equal(now, d.told) {
		return nil
	}
	old := d.told
	if d.told = now; old == nil {
		old = []int{} // the log has an empty list, not null
	}
	return &event.Shares{Old: old, New: now, Reason: why}
}

// speedometer remembers the speeds of this peer in the last steps, in samples a second times
// loadbal.SpeedUnit.
type speedometer []int64

// note takes in how long samples took.
func (m *speedometer) note(samples int, took time.Duration) {
	*m = append(*m, loadbal.Speed(samples, took.Microseconds()))
	if len(*m) > speedWindow {
		*m = (*m)[1:]
	}
}

// speed is the median; 0 if nothing is known.
func (m speedometer) speed() int64 {
	if len(m) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(m))[len(m)/2]
}

// ceilDiv divides and rounds up; a >= 0, b > 0.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
