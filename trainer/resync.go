package trainer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// errNextSession ends a session by a decision that all its members have made alike.
var errNextSession = errors.New("left for the next session")

// mostResyncs is how often a peer may be re-synced: a machine that goes on to
// compute something else is of no use.
const mostResyncs = 2

// agree wants all ranks of a session to have committed the same step and to have the
// same parameters after it. If some differ, all leave the session; those who differ
// get the state of the others in the next one.
func (r *runner) agree(s *elastic.Session, states []fingerprint) error {
	wrong, right := differing(states)
	if wrong == nil {
		return nil
	}
	var list []string
	for _, rank := range wrong {
		list = append(list, fmt.Sprintf("%s has %v", peerName(s)(rank), states[rank]))
	}
	err := fmt.Errorf("%w: %s; the others have %v", ErrDiverged, strings.Join(list, ", "), right)
	s.Comm.Revoke(err)
	if !slices.Contains(wrong, s.Rank) {
		return fmt.Errorf("%w: %w", errNextSession, err)
	}
	r.resyncs++
	if r.resyncs > mostResyncs {
		r.group.Leave()
		return fmt.Errorf("re-synced %d times before: %w", mostResyncs, err)
	}
	r.state.invalidate() // and what was computed from it goes with it
	r.group.Emit(s.View.Epoch, r.state.committed(), event.Resync{Who: s.View.Members[s.Rank].ID.Short(),
		Reason: fmt.Sprintf("has %v, the others have %v", states[s.Rank], right)})
	r.cfg.log("this peer has other parameters than the others and takes theirs: %v", err)
	return fmt.Errorf("%w: %w", errNextSession, err)
}

// fingerprint tells a state from others: all ranks must have the same before a step.
type fingerprint struct {
	committed int64
	digest    uint64
}

// String describes the state in an error.
func (s fingerprint) String() string {
	return fmt.Sprintf("digest %016x after step %d", s.digest, s.committed)
}

// differing returns the ranks whose state is not that of the most, and this one. Of
// equal numbers the one of the lowest rank is right.
func differing(states []fingerprint) (wrong []int, right fingerprint) {
	count := make(map[fingerprint]int)
	for _, s := range states {
		count[s]++
	}
	right = states[0]
	for _, s := range states { // in rank order, so that ties fall alike everywhere
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
