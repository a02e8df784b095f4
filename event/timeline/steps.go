package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

// Reports of a step come within a few steps. After openSteps more steps a step is closed.
const openSteps = 64

// maxStep bounds the number of a step. A higher one is a mistake of the log.
const maxStep = 1 << 50

// maxSpans bounds the ranges of microbatches that are remembered of a step.
const maxSpans = 1 << 14

// Coverage tells of how many steps the log has the microbatches of all peers. They add up to the batch
// exactly once if the log is complete.
type Coverage struct {
	Complete int64 `json:"complete"`          // steps with each microbatch once
	Missing  int64 `json:"missing,omitempty"` // steps that lack microbatches
	Twice    int64 `json:"twice,omitempty"`   // steps with a microbatch of two peers, or with two digests
	Open     int64 `json:"open,omitempty"`    // last steps, of which further reports may come
	// FirstMissing and FirstTwice are the first such steps; 0 if there are none.
	FirstMissing int64 `json:"first_missing,omitempty"`
	FirstTwice   int64 `json:"first_twice,omitempty"`
}

// span is a range of microbatches that a peer contributed.
type span struct{ first, end int }

// openStep gathers what peers report of one step.
type openStep struct {
	step      int64 // 0 if the place is free
	at        instant
	reports   int
	loss      float64
	samples   int
	shares    int // samples of the peers that have reported
	perBatch  float64
	learned   bool // some contributions are known from other peers only
	spans     []span
	from      []*identity // whose contributions are in spans
	digest    string
	differs   bool
	uses      Uses
	length    time.Duration // sum over the reports
	longest   time.Duration
	evaluated time.Duration // evaluations after the step
}

// contribute adds the ranges of a peer, unless another member has reported them. It copies them.
func (o *openStep) contribute(who *identity, ranges [][2]int) {
	if slices.Contains(o.from, who) {
		return
	}
	o.from = append(o.from, who)
	for _, r := range ranges {
		if len(o.spans) < maxSpans && r[0] < r[1] {
			o.spans = append(o.spans, span{r[0], r[1]})
		}
	}
}

// coverage judges the contributions: whether a microbatch is in two of them, and whether one is missing.
func (o *openStep) coverage() (twice, missing bool) {
	slices.SortFunc(o.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	end := 0
	for _, r := range o.spans {
		twice = twice || r.first < end
		missing = missing || r.first > end
		end = max(end, r.end)
	}
	// The number of microbatches is known from their samples only. The last one may be shorter.
	if o.samples > 0 && o.learned {
		missing = missing || float64(end)*o.perBatch < float64(o.samples)
	} else if o.samples > 0 {
		missing = missing || o.shares < o.samples
	}
	return twice || o.differs, missing
}

// steps has the latest steps of a job. A step that is closed goes into the series and the coverage.
type steps struct {
	open     [openSteps]openStep
	newest   int64
	closed   int64 // newest step that is closed
	coverage Coverage
	series   series
}

// at returns a step; nil if it is closed.
func (s *steps) at(n int64) *openStep {
	if n <= s.closed || n <= 0 || n > maxStep {
		return nil
	}
	if n > s.newest+openSteps && s.newest > s.closed { // all that are open are too old
		s.flush()
	}
	o := &s.open[n%openSteps]
	if o.step == n {
		return o
	}
	if n > s.newest {
		for k := max(s.closed, s.newest-openSteps, 0) + 1; k <= n-openSteps && k <= s.newest; k++ {
			s.shut(k)
		}
		s.closed = max(s.closed, n-openSteps)
		s.newest = n
	}
	spans, from := o.spans[:0], o.from[:0]
	*o = openStep{step: n, spans: spans, from: from}
	return o
}

// shut closes a step, if anything is known of it.
func (s *steps) shut(n int64) {
	o := &s.open[n%openSteps]
	if o.step != n {
		return
	}
	if o.reports > 0 {
		s.series.add(o)
		s.coverage.count(o)
	}
	o.step = 0
}

// flush closes all steps. Later ones may have any number.
func (s *steps) flush() {
	for k := max(s.closed, s.newest-openSteps) + 1; k <= s.newest; k++ {
		s.shut(k)
	}
	s.closed, s.newest = 0, 0
}

// unfinished returns the open steps with reports, in their order.
func (s *steps) unfinished() (list []*openStep) {
	for i := range s.open {
		if o := &s.open[i]; o.step > 0 && o.reports > 0 {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *openStep) int { return cmp.Compare(a.step, b.step) })
	return list
}

// count adds a step.
func (c *Coverage) count(o *openStep) {
	twice, missing := o.coverage()
	switch {
	case twice:
		if c.Twice++; c.FirstTwice == 0 {
			c.FirstTwice = o.step
		}
	case missing:
		if c.Missing++; c.FirstMissing == 0 {
			c.FirstMissing = o.step
		}
	default:
		c.Complete++
	}
}

// report adds a peer's report of the step.
func (o *openStep) report(who *identity, b *event.Step, at instant, spent Uses) {
	o.reports++
	o.at = max(o.at, at)
	o.uses.add(spent)
	length := duration(b.StepMS)
	o.length, o.longest = plus(o.length, length), max(o.longest, length)
	if b.Loss != 0 {
		o.loss = b.Loss
	}
	o.samples = max(o.samples, b.Samples)
	if o.digest != "" && b.Digest != "" && o.digest != b.Digest {
		o.differs = true
	}
	o.digest = max(o.digest, b.Digest)
	o.contribute(who, b.Microbatches)
	o.shares += max(0, b.ShareSamples)
	count := 0
	for _, r := range b.Microbatches {
		count += max(0, r[1]-r[0])
	}
	if count > 0 {
		o.perBatch = max(o.perBatch, float64(b.ShareSamples)/float64(count))
	}
}
