package elastic

import (
	"math/bits"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
)

const (
	// maxSamples bounds the number of samples of a step, so that products with that number cannot
	// overflow.
	maxSamples = 1 << 46
	// piecesPerMember is the largest number of pieces per member into which a step is cut. A share
	// is a number of pieces. maxPieces bounds the pieces of all members, far below the largest
	// numbers that the policies of loadbal can handle.
	piecesPerMember = 1024
	maxPieces       = 1 << 16
	// A member's speed is the median of its speeds in the last speedWindow steps. A median ignores
	// a single step that something else delayed.
	speedWindow = 5
)

// division divides the samples of steps among the members of a session. All members gather the same
// inputs, so all members compute the same division.
//
// The policy distributes pieces of the step. In a small step a piece is one sample. A large step is
// cut into equal pieces with at most unit samples each.
type division struct {
	policy  loadbal.Policy
	speeds  []int64          // by rank, when the member entered the session, in samples a second times loadbal.SpeedUnit; 0 for unknown
	unit    int              // largest number of samples in a piece; 0 before the first Part
	ends    []int            // by rank, the index after the rank's last piece; nil before the first Part
	shares  []int            // by rank, number of pieces
	reports []loadbal.Report // of the last step, not yet passed to the policy; or nil
	told    []int            // the last shares in the log, in samples by rank
	why     string           // reason for new shares that the log does not have yet; or empty
	left    bool             // all members have decided to leave the session
	leaving []int            // ranks of the members that leave after the present turn, see Turn.Leaving
	handed  bool             // this member has handed over and leaves

	due     bool // the next boundary compares digests of the states
	written bool // the log has a step of this session
}

// newDivision returns the division for a session whose members have the given speeds, by rank.
func newDivision(b Balance, speeds []int64) *division {
	policy, _ := loadbal.New(string(b)) // the name was checked by stepOptions.check
	return &division{policy: policy, speeds: speeds, why: "the members have changed"}
}

// expect records who leaves after the next turn, from the records of all members.
func (d *division) expect(all []record) {
	d.leaving = nil
	for rank, r := range all {
		if r.leaving {
			d.leaving = append(d.leaving, rank)
		}
	}
}

// divide cuts a step of n samples: it passes the reports of the last step to the policy and
// computes the shares. It chooses the size of a piece at the first step, and again when a step
// would have more than 2*maxPieces pieces.
func (d *division) divide(n int) {
	if n == 0 || len(d.speeds) == 1 {
		return
	}
	if d.unit == 0 || ceilDiv(n, d.unit) > 2*maxPieces {
		d.unit = max(1, ceilDiv(n, min(piecesPerMember*len(d.speeds), maxPieces)))
		// The policy counts in pieces, so speeds are in pieces a second, too.
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

// part returns the samples [lo, hi) of a rank, out of n samples, in the proportions of the last
// call of divide. That call may have had another number of samples.
func (d *division) part(n, rank int) (lo, hi int) {
	if len(d.speeds) == 1 {
		return 0, n
	}
	if d.ends == nil { // divide has not been called with samples so far
		return 0, 0
	}
	if rank > 0 {
		lo = d.bound(n, d.ends[rank-1])
	}
	return lo, d.bound(n, d.ends[rank])
}

// bound returns how many of n samples are in the first pieces of a step. The argument pieces is the
// number of these pieces.
func (d *division) bound(n, pieces int) int {
	all := d.ends[len(d.ends)-1]
	high, low := bits.Mul64(uint64(n), uint64(pieces))
	q, _ := bits.Div64(high, low, uint64(all)) // pieces <= all, so the quotient fits in 64 bits
	return int(q)
}

// learn records the computing times of a step that the members divided with Part, and ignores other
// steps.
func (d *division) learn(all []record) {
	if d.shares == nil || all[0].samples <= 0 {
		return
	}
	d.reports = make([]loadbal.Report, len(all))
	for rank, r := range all {
		d.reports[rank] = loadbal.Report{Share: d.shares[rank], Micros: r.micros}
	}
}

// forecast returns the expected computing time of a rank in the open step; 0 if it is unknown.
func (d *division) forecast(rank int) time.Duration {
	if d.shares == nil {
		return 0
	}
	return time.Duration(d.policy.Forecast()[rank]) * time.Microsecond
}

// changed returns an event with the shares of a step of n samples, or nil if the log has the same
// shares already or there are none.
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
	d.told = now
	if old == nil {
		old = []int{} // the log shows an empty list, not null
	}
	return &event.Shares{Old: old, New: now, Reason: why}
}

// speedometer holds the speeds of this peer in the last speedWindow steps, as loadbal.Speed returns
// them.
type speedometer []int64

// note records the duration of computing a number of samples.
func (s *speedometer) note(samples int, took time.Duration) {
	*s = append(*s, loadbal.Speed(samples, took.Microseconds()))
	if len(*s) > speedWindow {
		*s = (*s)[1:]
	}
}

// speed returns the median speed; 0 before the first measurement.
func (s speedometer) speed() int64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[len(s)/2]
}

// ceilDiv returns a/b, rounded up. It requires a >= 0 and b > 0.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
