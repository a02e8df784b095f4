package trainer

import (
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
)

// Errors that every peer finds in the same commit record.
var (
	// ErrDiverged: this peer's parameters have differed from the parameters of the others
	// repeatedly, although this peer got the state of the others each time.
	ErrDiverged = errors.New("peers have diverged")
	// ErrWeights: in one step some calls of the model have given a weight, and others have not
	// (Batch.Weight).
	ErrWeights = errors.New("weights are missing")
	// ErrNotFinite: a loss or a gradient is infinite or NaN.
	ErrNotFinite = errors.New("not a finite number")
)

// rankReport is one rank's part of the commit record of a step.
type rankReport struct {
	samples int64          // in the rank's contribution
	loss    ledger.Sum     // sum over samples
	weights ledger.Weights // of the samples; it counts only where it differs from their number
	// micros is the time in which the rank computed its share, in microseconds; 0 if the time does
	// not show the rank's speed.
	micros   int64
	maxShare int64 // bound on the rank's share, in microbatches; 0 for none
	busy     int64 // microseconds in which the rank has computed its share, since the commit record before
	// group is the number of samples in the rank's first call of the model, and groupNorm the squared norm of
	// the sum of their gradients; 0 if not due.
	group     int64
	groupNorm float64
	fault     fault // in the rank's contribution
	// digest is the digest of the parameters before the step; 0 if none is due.
	digest    uint64
	committed int64  // last step that the rank has committed
	stale     bool   // the rank's session is stale: there is a later view
	nonce     uint64 // for the seed of the step's audit
	print     uint64 // audit fingerprint of the rank's part of the last committed step
	accuses   bool   // the rank accuses a member in an audit
	// links has the rank's new measurements of links to itself.
	links linkUpdates
	// stolen says what the rank has stolen and holds. It is only in a record with stealWords.
	stolen steal.Report
}

// fault is an error in a rank's own contribution: 0 for none, 1 for the loss, 2+i for the
// gradient of parameter i.
type fault int64

const (
	faultNone fault = iota
	faultLoss
	faultGradient
)

// reportWords is the length of an encoded report, in int64. encode and decodeReports must
// agree with it. Where microbatches may be stolen, stealWords follow.
const (
	reportWords = 16
	stealWords  = steal.MaxClaims + 1
)

// Bits of the flags word of an encoded report.
const (
	flagStale = 1 << iota
	flagAccuses
	flagGiven
	flagSkipped
	flagCounted
)

// encode writes the report of rank to a zero commit record with the given number of words a rank,
// with or without stealWords. The records of all ranks are added up. Each word is nonzero at one rank at most, so the sum keeps all bits, also of digests
// and floating-point numbers: the reduction is a gather.
func (r rankReport) encode(record []int64, rank, words int) {
	flags := int64(0)
	if r.stale {
		flags |= flagStale
	}
	if r.accuses {
		flags |= flagAccuses
	}
	// Runs with weights have no audits, so weights take the words of audits.
	nonce, print := r.nonce, r.print
	if w := r.weights; w.Differ() {
		nonce, print = uint64(w.Sum.Hi), w.Sum.Lo
		for i, set := range []bool{w.Given, w.Skipped, w.Counted} {
			if set {
				flags |= flagGiven << i
			}
		}
	}
	own := record[rank*words:][:words]
	copy(own, []int64{r.samples, r.loss.Hi, int64(r.loss.Lo), r.micros, r.maxShare, int64(math.Float64bits(r.groupNorm)),
		int64(r.fault), int64(r.digest), r.committed, flags, r.links[0], r.links[1], int64(nonce), int64(print), r.group, r.busy})
	if words > reportWords {
		for i, c := range r.stolen.Claims {
			own[reportWords+i] = c.Word()
		}
		own[words-1] = int64(r.stolen.Print)
	}
}

// decodeReports decodes a reduced commit record with the given number of words a rank.
func decodeReports(record []int64, words int) []rankReport {
	reports := make([]rankReport, len(record)/words)
	for r := range reports {
		w := record[r*words:][:words]
		reports[r] = rankReport{samples: w[0], loss: ledger.Sum{Hi: w[1], Lo: uint64(w[2])}, micros: w[3], maxShare: w[4],
			group: w[14], busy: w[15], groupNorm: math.Float64frombits(uint64(w[5])), fault: fault(w[6]), digest: uint64(w[7]), committed: w[8], stale: w[9]&flagStale != 0,
			accuses: w[9]&flagAccuses != 0, links: linkUpdates{w[10], w[11]}, nonce: uint64(w[12]), print: uint64(w[13])}
		if v := (ledger.Weights{Given: w[9]&flagGiven != 0, Skipped: w[9]&flagSkipped != 0, Counted: w[9]&flagCounted != 0}); v.Differ() {
			v.Sum = ledger.Sum{Hi: w[12], Lo: uint64(w[13])}
			reports[r].weights, reports[r].nonce, reports[r].print = v, 0, 0
		}
		if words > reportWords {
			for i := range reports[r].stolen.Claims {
				reports[r].stolen.Claims[i] = steal.ClaimOf(w[reportWords+i])
			}
			reports[r].stolen.Print = uint64(w[words-1])
		}
	}
	return reports
}

// idleReport returns a report without a contribution: only the committed step and the digest of the
// parameters after that step.
func idleReport(s *state) rankReport {
	return rankReport{committed: s.committed(), digest: s.dueDigest()}
}

// anyStale reports whether the session of some rank is stale, because there is a later view.
func anyStale(reports []rankReport) bool {
	for _, s := range reports {
		if s.stale {
			return true
		}
	}
	return false
}

// peerName returns a function that formats a rank for messages.
func peerName(s *elastic.Session) func(rank int) string {
	return func(rank int) string { return fmt.Sprintf("rank %d (%s)", rank, s.View.Members[rank].ID.Short()) }
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
