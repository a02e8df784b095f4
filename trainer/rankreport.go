package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Errors of a step that every peer finds in the same commit record.
var (
	// ErrDiverged: this peer's parameters have come to differ from those of the others,
	// again and again.
	ErrDiverged = errors.New("peers have diverged")
	// ErrNotFinite: a loss or a gradient is infinite or not a number.
	ErrNotFinite = errors.New("not a finite number")
)

// rankReport is what one rank tells the others in the commit record of a step.
type rankReport struct {
	samples    int64   // in its contribution
	loss       lossSum // sum over them
	micros     int64   // that the model took for them, in microseconds; 0 if that is no measure
	maxShare   int64   // microbatches that the rank can take; 0 for no bound
	squareNorm float64 // squared norm of the sum of their gradients, 0 if it is not due
	fault      fault
	digest     uint64      // of the parameters before the step, 0 if it is not due
	committed  int64       // the last step that this rank has committed
	stale      bool        // it knows of a later view
	nonce      uint64      // for the seed of the step's audit
	print      uint64      // of its part of the last committed step, as audits tell it
	accuses    bool        // it accuses a member in an audit
	links      linkUpdates // what it has measured of links to it
}

// fault says what a rank found wrong with its own contribution: 0 nothing, 1 the
// loss, 2+i the gradient of parameter i.
type fault int64

const (
	faultNone fault = iota
	faultLoss
	faultGradient
)

// reportWords is the number of int64 in an encoded report.
const reportWords = 14

// Flags of a report.
const (
	flagStale = 1 << iota
	flagAccuses
)

// encodeReport writes the report of rank to a commit record that is otherwise zero. The commit records of all
// ranks are summed: as every word but those of the rank itself is zero, sums
// keep all bits, those of digests, too.
func encodeReport(record []int64, rank int, s rankReport) {
	flags := int64(0)
	if s.stale {
		flags |= flagStale
	}
	if s.accuses {
		flags |= flagAccuses
	}
	copy(record[rank*reportWords:], []int64{s.samples, s.loss.Hi, int64(s.loss.Lo), s.micros, s.maxShare, int64(math.Float64bits(s.squareNorm)),
		int64(s.fault), int64(s.digest), s.committed, flags, s.links[0], s.links[1], int64(s.nonce), int64(s.print)})
}

// decodeReports reads a reduced commit record.
func decodeReports(record []int64) []rankReport {
	reports := make([]rankReport, len(record)/reportWords)
	for r := range reports {
		w := record[r*reportWords:]
		reports[r] = rankReport{samples: w[0], loss: lossSum{w[1], uint64(w[2])}, micros: w[3], maxShare: w[4],
			squareNorm: math.Float64frombits(uint64(w[5])), fault: fault(w[6]), digest: uint64(w[7]), committed: w[8], stale: w[9]&flagStale != 0,
			accuses: w[9]&flagAccuses != 0, links: linkUpdates{w[10], w[11]}, nonce: uint64(w[12]), print: uint64(w[13])}
	}
	return reports
}

// idleReport is a report that tells nothing but which step this peer has committed, and the state after
// it.
func idleReport(s *state) rankReport {
	return rankReport{committed: s.committed(), digest: s.dueDigest()}
}

// exchangeReports tells all the ranks' reports. When it succeeds every rank has come to that call.
func exchangeReports(ctx context.Context, s *elastic.Session, mine rankReport) ([]rankReport, error) {
	words := make([]int64, len(s.View.Members)*reportWords)
	encodeReport(words, s.Rank, mine)
	if err := collective.AllReduce(ctx, s.Comm.With(collective.CallOptions{For: "commit record"}), words, words, collective.Sum[int64]); err != nil {
		return nil, fmt.Errorf("commit record after step %d: %w", mine.committed, err)
	}
	return decodeReports(words), nil
}

// checkFaults returns ErrNotFinite with the first rank that reported a fault.
func checkFaults(reports []rankReport, name func(rank int) string, params []Param) error {
	for r, s := range reports {
		switch i := int(s.fault - faultGradient); {
		case s.fault == faultNone:
		case s.fault == faultLoss:
			return fmt.Errorf("loss of %s: %w", name(r), ErrNotFinite)
		case i >= 0 && i < len(params):
			return fmt.Errorf("gradient of %s at %s: %w", params[i].Name, name(r), ErrNotFinite)
		default:
			return fmt.Errorf("fault %d at %s: %w", s.fault, name(r), ErrNotFinite)
		}
	}
	return nil
}

// totals adds up samples and losses.
func totals(reports []rankReport) (samples int64, loss lossSum) {
	for _, s := range reports {
		samples += s.samples
		loss = loss.plus(s.loss)
	}
	return samples, loss
}

// anyStale reports whether a rank knows of a later view.
func anyStale(reports []rankReport) bool {
	for _, s := range reports {
		if s.stale {
			return true
		}
	}
	return false
}

// peerName names a rank for people.
func peerName(s *elastic.Session) func(rank int) string {
	return func(rank int) string { return fmt.Sprintf("rank %d (%s)", rank, s.View.Members[rank].ID.Short()) }
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// allFinite reports whether all of v is finite. The differences are summed, which
// is quicker than a branch for each: one that is NaN stays. The sums are variables of
// their own, as elements of an array would be in memory, which takes five times as long.
func allFinite(v []float32) bool {
	var a, b, c, d float32
	for len(v) >= 4 {
		a += v[0] - v[0]
		b += v[1] - v[1]
		c += v[2] - v[2]
		d += v[3] - v[3]
		v = v[4:]
	}
	for _, x := range v {
		a += x - x
	}
	return a+b+c+d == 0
}
