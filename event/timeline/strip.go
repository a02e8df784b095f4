package timeline

import (
	"slices"
	"time"
)

// Strip tells what a peer has spent its time on, in equal intervals from Begin on.
type Strip struct {
	Begin   time.Time `json:"begin,omitzero"`
	WidthMS float64   `json:"width_ms,omitempty"` // of an interval
	// Uses has a letter for each interval, that of the use that took most of it, as Letter returns it; a dot stands for
	// none, as while the peer is parked.
	Uses string `json:"uses,omitempty"`
}

// Letter returns the letter of a use in a Strip.
func (u Use) Letter() byte {
	const letters = "udwcarvksepbo"
	if u < 0 || int(u) >= uses {
		return '.'
	}
	return letters[u]
}

const (
	// stripIntervals bounds the intervals of a strip.
	stripIntervals = 240
	// stripWidth is the width of an interval at first. It doubles when there are too many.
	stripWidth = 250 * time.Millisecond
)

// strip gathers the uses of a peer's time by interval.
type strip struct {
	begin     instant // 0 before the first use
	width     time.Duration
	intervals []Uses
}

// add adds what was spent between two instants.
func (s *strip) add(from, to instant, spent Uses) {
	if from == 0 || spent == (Uses{}) {
		return
	}
	if s.begin == 0 {
		s.begin, s.width = from, stripWidth
	}
	from = max(from, s.begin)
	to = max(to, from+1)
	for to.since(s.begin)/s.width >= stripIntervals {
		s.halve()
	}
	first, last := int(from.since(s.begin)/s.width), int((to-1).since(s.begin)/s.width)
	if n := last + 1 - len(s.intervals); n > 0 {
		s.intervals = append(s.intervals, make([]Uses, n)...)
	}
	for i := first; i <= last; i++ {
		begin := s.begin.plus(time.Duration(i) * s.width)
		part := float64(min(to, begin.plus(s.width)).since(max(from, begin))) / float64(to.since(from))
		for u, d := range spent {
			s.intervals[i][u] += time.Duration(part * float64(d))
		}
	}
}

// halve joins the intervals in pairs.
func (s *strip) halve() {
	s.width *= 2
	kept := s.intervals[:0]
	for i := 0; i < len(s.intervals); i += 2 {
		u := s.intervals[i]
		if i+1 < len(s.intervals) {
			u.add(s.intervals[i+1])
		}
		kept = append(kept, u)
	}
	s.intervals = kept
}

// export returns the strip for readers.
func (s *strip) export() Strip {
	if s.begin == 0 {
		return Strip{}
	}
	letters := make([]byte, len(s.intervals))
	for i, u := range s.intervals {
		letters[i] = '.'
		if most := slices.Max(u[:]); most > 0 {
			letters[i] = Use(slices.Index(u[:], most)).Letter()
		}
	}
	return Strip{Begin: s.begin.time(), WidthMS: milliseconds(s.width), Uses: string(letters)}
}
