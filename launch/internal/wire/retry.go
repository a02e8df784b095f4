package wire

import (
	"fmt"
	"strings"

	"github.com/elrun/elrun/launch/spec"
)

// MaxRetryOf and MaxRetrySamples bound the lists in a RetryOrder.
const MaxRetryOf, MaxRetrySamples = 2 * spec.MaxPeers, 64

// RetryOrder reports that a peer is about to compute a part again, see elastic.Retry. Step is 0 when
// the peer has computed the part of its last RetryOrder.
type RetryOrder struct {
	Seq     int      `json:"seq"`
	Step    int64    `json:"step"`
	Samples []int    `json:"samples,omitempty"`
	More    int      `json:"more,omitempty"` // number of samples that are not in Samples
	Of      []string `json:"of,omitempty"`   // short IDs
}

// Decision is the answer to the RetryOrder with the same Seq. Mistake is "" if the part may be
// computed.
type Decision struct {
	Seq     int    `json:"seq"`
	Mistake string `json:"mistake,omitempty"`
}

// check returns an error for a RetryOrder that no correct peer sends.
func (r RetryOrder) check() error {
	if r.Step < 0 || r.More < 0 || len(r.Samples) > MaxRetrySamples || len(r.Of) > MaxRetryOf {
		return fmt.Errorf("a part of step %d with %d samples of %d peers: want at most %d and %d", r.Step, len(r.Samples), len(r.Of), MaxRetrySamples, MaxRetryOf)
	}
	return nil
}

// String describes the part, as in "step 12, samples 7, 1234".
func (r RetryOrder) String() string {
	var shown []string
	for _, s := range r.Samples[:min(shownSamples, len(r.Samples))] {
		shown = append(shown, fmt.Sprint(s))
	}
	text := fmt.Sprintf("step %d, samples %s", r.Step, strings.Join(shown, ", "))
	if more := len(r.Samples) - len(shown) + r.More; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// shownSamples is the number of samples in a line.
const shownSamples = 8
