package timeline

import "slices"

// Since returns s without the points of its series that a snapshot of the same Job up to a step has already, so that
// it is short. It shares memory with s.
func Since(s Snapshot, step int64) Snapshot {
	s.Series.BySteps, s.Series.ByTime = levelsSince(s.Series.BySteps, step), levelsSince(s.Series.ByTime, step)
	return s
}

// sinceSlack is the number of steps for which a point may still change, as some peers report later.
const sinceSlack = openSteps

// levelsSince returns levels from the first point on that has a step later than step less sinceSlack. Steps may begin
// again at 1, if a command runs a further program.
func levelsSince(levels []Level, step int64) []Level {
	levels = slices.Clone(levels)
	for i, l := range levels {
		if n := slices.IndexFunc(l.Points, func(p Point) bool { return p.Last > step-sinceSlack }); n >= 0 {
			levels[i].Points = l.Points[n:]
		} else {
			levels[i].Points = nil
		}
	}
	return levels
}

// After returns s, which Since has shortened, with the points of an earlier snapshot. It returns false if
// the points do not fit together, since the resolution has changed: then the whole snapshot is needed.
func After(s, earlier Snapshot) (Snapshot, bool) {
	steps, ok := levelsAfter(s.Series.BySteps, earlier.Series.BySteps)
	times, fits := levelsAfter(s.Series.ByTime, earlier.Series.ByTime)
	s.Series = Series{BySteps: steps, ByTime: times}
	return s, ok && fits && s.Seq >= earlier.Seq && s.Begin.Equal(earlier.Begin)
}

// levelsAfter returns levels with the points of earlier ones before theirs.
func levelsAfter(levels, earlier []Level) ([]Level, bool) {
	if len(earlier) == 0 {
		return levels, true // there were no steps
	}
	if len(levels) != len(earlier) {
		return nil, false
	}
	levels = slices.Clone(levels)
	for i, l := range levels {
		before := earlier[i]
		if l.Width != before.Width {
			return nil, false
		}
		points := slices.Clone(before.Points)
		if len(l.Points) > 0 {
			first := l.Points[0].First
			n := slices.IndexFunc(points, func(p Point) bool { return p.First == first })
			switch {
			case n >= 0:
				points = points[:n]
			case len(points) > 0 && points[len(points)-1].Last >= first:
				return nil, false
			}
		}
		points = append(points, l.Points...)
		levels[i].Points = points[max(0, len(points)-levelPoints):]
	}
	return levels, true
}
