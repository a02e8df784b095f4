package trainer

import (
	"github.com/elrun/elrun/trainer/internal/audit"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// resumeReport is a rank's report at the entry of a session. The ranks need the reports of all
// ranks to continue with the open step.
type resumeReport struct {
	state     fingerprint // committed step and digest of the state
	attempt   int64       // number of the attempt at the open step
	exponents []int8      // scale of the attempt; empty without exact mode
	held      ledger.Set  // microbatches of the open step in the contribution
	speed     int64       // as loadbal.Speed; 0 if unknown
	most      int         // bound on the rank's share, in microbatches; 0 for none
	// links are the known costs of the links to this rank, by the sending rank.
	links []linkCost
	// accusing is an accusation by this rank in an audit that is not decided yet.
	accusing accusation
}

// entryWords is the number of words before the packed exponents and link costs.
const entryWords = 8

// encode encodes the report: fixed words, then exponents and link costs with eight to a word,
// then the set of microbatches.
func (r resumeReport) encode() []uint64 {
	w := []uint64{uint64(r.state.committed), r.state.digest, uint64(r.attempt), uint64(r.speed), uint64(r.most),
		uint64(r.accusing.step), r.accusing.accused, uint64(r.accusing.computed)}
	// The exponents and link costs are bytes. With one word for each, the report of a large group
	// would be eight times as long.
	packed := make([]uint64, ceilDiv(len(r.exponents)+len(r.links), 8))
	for i, x := range r.exponents {
		packed[i/8] |= uint64(uint8(x)) << (i % 8 * 8)
	}
	for k, p := range r.links {
		i := len(r.exponents) + k
		packed[i/8] |= uint64(p) << (i % 8 * 8)
	}
	return append(append(w, packed...), r.held...)
}

// decodeResumeReport decodes the words of encode. exponents is the number of exponents, and ranks is
// the number of link costs.
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
