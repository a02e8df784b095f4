package timeline

import (
	"slices"
	"time"
)

// levelPoints is the number of points of a level.
const levelPoints = 512

// Series has figures of the job over its steps and over time, each at several resolutions, the finest first.
// The last level of each covers the whole job.
type Series struct {
	BySteps []Level `json:"by_steps"`
	ByTime  []Level `json:"by_time"`
}

// Level is a series at one resolution. It has at most 512 points.
type Level struct {
	// Width is the number of steps, or of seconds, of a point.
	Width  int64   `json:"width"`
	Points []Point `json:"points"`
}

// Point has the figures of the steps from First to Last.
type Point struct {
	First    int64     `json:"first"`
	Last     int64     `json:"last"`
	Time     time.Time `json:"time"`    // of the last report about these steps
	Members  float64   `json:"members"` // mean number of the members that have reported a step
	Loss     float64   `json:"loss,omitempty"`
	Samples  int       `json:"samples"`
	SamplesS float64   `json:"samples_per_s,omitempty"` // since the point before; 0 if unknown
	StepMS   float64   `json:"step_ms"`                 // mean over the reports
	SlowMS   float64   `json:"slow_ms"`                 // the longest step
	// Uses is the peer-time of these steps, with the gaps before them.
	Uses Uses `json:"uses"`
}

// bucket gathers the figures of a point.
type bucket struct {
	key         int64 // steps or seconds by the width of the level
	first, last int64
	at          instant
	steps       int64
	reports     int64
	loss        float64
	losses      int64
	samples     int
	length      time.Duration
	longest     time.Duration
	uses        Uses
}

// merge adds the figures of later steps.
func (b *bucket) merge(later bucket) {
	b.last = max(b.last, later.last)
	b.at = max(b.at, later.at)
	b.steps += later.steps
	b.reports += later.reports
	b.loss += later.loss
	b.losses += later.losses
	b.samples += later.samples
	b.length = plus(b.length, later.length)
	b.longest = max(b.longest, later.longest)
	b.uses.add(later.uses)
}

// level is a series of buckets. If it is whole, its buckets are merged in pairs when there are too many;
// otherwise the oldest are dropped.
type level struct {
	width   int64
	whole   bool
	buckets []bucket
}

// add adds the figures of a step at a position on the axis.
func (l *level) add(at int64, b bucket) {
	b.key = at / l.width
	if n := len(l.buckets); n > 0 && l.buckets[n-1].key == b.key {
		l.buckets[n-1].merge(b)
		return
	}
	l.buckets = append(l.buckets, b)
	switch {
	case l.whole:
		for len(l.buckets) > levelPoints {
			l.halve()
		}
	case len(l.buckets) >= 2*levelPoints:
		l.buckets = slices.Delete(l.buckets, 0, len(l.buckets)-levelPoints-1) // the speed of a point needs the one before
	}
}

// halve doubles the width.
func (l *level) halve() {
	l.width *= 2
	kept := l.buckets[:0]
	for _, b := range l.buckets {
		b.key /= 2
		if n := len(kept); n > 0 && kept[n-1].key == b.key {
			kept[n-1].merge(b)
			continue
		}
		kept = append(kept, b)
	}
	l.buckets = kept
}

// export returns the level for readers.
func (l *level) export() Level {
	hidden := max(0, len(l.buckets)-levelPoints)
	out := Level{Width: l.width, Points: make([]Point, len(l.buckets)-hidden)}
	for i := range out.Points {
		b := l.buckets[hidden+i]
		p := Point{First: b.first, Last: b.last, Time: b.at.time(), Samples: b.samples, SlowMS: milliseconds(b.longest), Uses: b.uses}
		p.Members = float64(b.reports) / float64(max(1, b.steps))
		p.StepMS = milliseconds(b.length) / float64(max(1, b.reports))
		p.Loss = b.loss / float64(max(1, b.losses))
		if hidden+i > 0 {
			if d := b.at.since(l.buckets[hidden+i-1].at).Seconds(); d > 0 {
				p.SamplesS = float64(b.samples) / d
			}
		}
		out.Points[i] = p
	}
	return out
}

// series has the levels of both axes.
type series struct {
	steps, times []level
	start        instant // of the first step
}

// add adds a step.
func (s *series) add(o *openStep) {
	if s.steps == nil {
		s.steps = []level{{width: 1}, {width: 32}, {width: 1, whole: true}}
		s.times = []level{{width: 1}, {width: 60}, {width: 1, whole: true}}
	}
	b := bucket{first: o.step, last: o.step, at: o.at, steps: 1, reports: int64(o.reports), samples: o.samples,
		length: o.length, longest: o.longest, uses: o.uses}
	if o.loss != 0 {
		b.loss, b.losses = o.loss, 1
	}
	for i := range s.steps {
		s.steps[i].add(o.step, b)
	}
	if o.at == 0 {
		return
	}
	if s.start == 0 {
		s.start = o.at
	}
	for i := range s.times {
		s.times[i].add(int64(o.at.since(s.start)/time.Second), b)
	}
}

// with returns a copy of the series with further steps.
func (s series) with(unfinished []*openStep) series {
	s.steps, s.times = slices.Clone(s.steps), slices.Clone(s.times)
	for i := range s.steps {
		s.steps[i].buckets = slices.Clone(s.steps[i].buckets)
	}
	for i := range s.times {
		s.times[i].buckets = slices.Clone(s.times[i].buckets)
	}
	for _, o := range unfinished {
		s.add(o)
	}
	return s
}

// export returns the series for readers.
func (s series) export() (out Series) {
	for i := range s.steps {
		out.BySteps = append(out.BySteps, s.steps[i].export())
	}
	for i := range s.times {
		out.ByTime = append(out.ByTime, s.times[i].export())
	}
	return out
}
