package trainer

import (
	"github.com/elrun/elrun/trainer/internal/audit"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// resumeReport is what a rank tells the others when it enters a session.
type resumeReport struct {
	state     fingerprint
	attempt   int64
	exponents []int8     // of the attempt; none without exact mode
	held      ledger.Set // microbatches of the open step
	speed     int64      // as loadbal.Speed counts it; 0 if it is not known
	most      int        // microbatches that the rank can take; 0 for no bound
	links     []linkCost // what is known of those to it, by rank
	accusing  accusation // by the rank, in an audit
}

// entryWords is the number of words before the exponents and paces.
const entryWords = 8

// encode encodes the entry.
func (e resumeReport) encode() []uint64 {
	w := []uint64{uint64(e.state.committed), e.state.digest, uint64(e.attempt), uint64(e.speed), uint64(e.most),
		uint64(e.accusing.step), e.accusing.accused, uint64(e.accusing.computed)}
	packed := make([]uint64, ceilDiv(len(e.exponents)+len(e.links), 8))
	for i, x := range e.exponents {
		packed[i/8] |= uint64(uint8(x)) << (i % 8 * 8)
	}
	for k, p := range e.links {
		i := len(e.exponents) + k
		packed[i/8] |= uint64(p) << (i % 8 * 8)
	}
	return append(append(w, packed...), e.held...)
}

// decodeResumeReport decodes what words wrote, with so many exponents and ranks.
func decodeResumeReport(w []uint64, exponents, ranks int) resumeReport {
	e := resumeReport{state: fingerprint{int64(w[0]), w[1]}, attempt: int64(w[2]), speed: int64(w[3]), most: int(w[4]),
		accusing:  accusation{int64(w[5]), w[6], audit.Print(w[7])},
		exponents: make([]int8, exponents), links: make([]linkCost, ranks)}
	w = w[entryWords:]
	for i := range e.exponents {
		e.exponents[i] = int8(w[i/8] >> (i % 8 * 8))
	}
	for k := range e.links {
		i := exponents + k
		e.links[k] = linkCost(w[i/8] >> (i % 8 * 8))
	}
	e.held = ledger.Set(w[ceilDiv(exponents+ranks, 8):])
	return e
}

// resumePlan derives from what all have told how the open step goes on: the rank whose
// attempt counts, the microbatches of each rank, as near as can be to how many are wanted
// of each, and whether each keeps what it holds. It is a pure function, so all come to
// the same.
func resumePlan(all []resumeReport, wanted []int, microbatches int) (leader int, shares []ledger.Set, kept []bool) {
	for rank, e := range all {
		if e.attempt > all[leader].attempt {
			leader = rank
		}
	}
	held := make([]ledger.Set, len(all))
	for rank, e := range all {
		if e.attempt == all[leader].attempt {
			held[rank] = e.held
		}
	}
	shares, kept = ledger.Assign(held, wanted, microbatches)
	for rank, e := range all {
		kept[rank] = kept[rank] && e.attempt == all[leader].attempt
	}
	return leader, shares, kept
}
