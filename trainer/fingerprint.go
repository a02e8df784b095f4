package trainer

import (
	"fmt"
)

// fingerprint identifies a state. All ranks must have equal fingerprints before a step.
type fingerprint struct {
	committed int64 // last committed step
	// digest is the digest of the parameters.
	digest uint64
}

// String describes the state for an error.
func (f fingerprint) String() string {
	return fmt.Sprintf("digest %016x after step %d", f.digest, f.committed)
}

// differing returns the state that most ranks have, and the ranks with another state. Of equally
// common states, the state of the lowest rank counts as right, so that all ranks agree.
func differing(states []fingerprint) (wrong []int, right fingerprint) {
	count := make(map[fingerprint]int)
	for _, s := range states {
		count[s]++
	}
	right = states[0]
	for _, s := range states { // in rank order, so that ties are resolved alike at all ranks
		if count[s] > count[right] {
			right = s
		}
	}
	for rank, s := range states {
		if s != right {
			wrong = append(wrong, rank)
		}
	}
	return wrong, right
}

// digestBytes bounds the cost of digests: the average number of parameter bytes that are digested
// per step.
const digestBytes = 1 << 20

// digestDue reports whether the digest of the parameters after a step is due: after every step for
// small models, and after every n-th step for larger ones, where n grows with the model. All peers
// decide alike.
func digestDue(step int64, params []Param) bool {
	elements := 0
	for _, p := range params {
		elements += len(p.Data)
	}
	return step%int64(ceilDiv(4*elements, digestBytes)) == 0
}
