package timeline

import (
	"maps"
	"time"

	"github.com/elrun/elrun/event"
)

// Counts has sums that only grow, for metrics.
type Counts struct {
	Steps   int64            `json:"steps"`   // committed steps of the job
	Samples int64            `json:"samples"` // of these steps
	Views   map[string]int64 `json:"views"`   // by the reason
	Lost    map[string]int64 `json:"lost"`    // peers by the cause
	Stalls  map[string]int64 `json:"stalls"`  // by the phase of the culprit
	StallMS float64          `json:"stall_ms"`
	// Audits has the audits that have found a difference by their result: out (the members of a minority
	// were put out), tie, or agreed (all members computed the same, and the sum differs).
	Audits map[string]int64 `json:"audits"`
}

// maxNamed bounds the names of a count. Further ones count as "other".
const maxNamed = 64

// count adds one to a named count.
func count(to *map[string]int64, name string) {
	if *to == nil {
		*to = make(map[string]int64)
	}
	if _, ok := (*to)[name]; !ok && len(*to) >= maxNamed {
		name = "other"
	}
	(*to)[name]++
}

// clone returns a copy.
func (c Counts) clone() Counts {
	c.Views, c.Lost, c.Stalls, c.Audits = maps.Clone(c.Views), maps.Clone(c.Lost), maps.Clone(c.Stalls), maps.Clone(c.Audits)
	return c
}

// audit counts an audit.
func (c *Counts) audit(b event.Audit) {
	switch {
	case b.Out:
		count(&c.Audits, "out")
	case b.Reason != "":
		count(&c.Audits, "agreed")
	default:
		count(&c.Audits, "tie")
	}
}

// Histogram counts the steps of a peer by their times. The buckets end at 1, 3, 10, 30 ms, and so on up to
// 100 s; the last one has all longer steps.
type Histogram [12]int64

// HistogramBounds returns the upper bounds of the buckets of a Histogram but the last.
func HistogramBounds() (bounds [11]time.Duration) {
	one := time.Millisecond
	for i := range bounds {
		bounds[i] = one
		if i%2 == 1 {
			bounds[i] = 3 * one
			one *= 10
		}
	}
	return bounds
}

// add counts a step.
func (h *Histogram) add(d time.Duration) {
	bounds := HistogramBounds()
	for i, b := range bounds {
		if d <= b {
			h[i]++
			return
		}
	}
	h[len(bounds)]++
}
