package loadbal

// stuckDetector finds a rank whose learned fixed part is far too large. This state does not end by
// itself.
//
// The first estimates of a fixed part come from few changes of the share, while the noise is not
// known yet, and may be far too large. Then the time seems not to depend on the share, so the share
// does not change. Without changes of the share nothing more is learned, although the rank delays
// all other ranks. If the fixed part really is that large, the rank gets the smallest allowed
// share, and does not count as stuck.
type stuckDetector struct {
	rank int // slowest rank of the last step
	// steps is the number of steps in a row in which the suspected rank was stuck.
	steps int
	again bool // a fixed part has been forgotten
}

// stuckSteps is the number of steps in a row after which a rank counts as stuck. A single slow step
// may be noise. After the first time a fixed part has been learned again, and is forgotten only
// after stuckAgain steps.
const stuckSteps, stuckAgain = 4, 256

// observe records the reports of a step, with the fixed part and the cost of each rank. It returns
// the rank whose fixed part is to be forgotten, or -1.
func (s *stuckDetector) observe(reports []Report, fixed []fixedPart, costs []Cost) int {
	slow, longest := 0, int64(0)
	for r, report := range reports {
		if t, ok := report.measured(); ok && t > longest {
			slow, longest = r, t
		}
	}
	if slow != s.rank {
		s.rank, s.steps = slow, 0
	}
	if s.steps++; !farSlower(reports, slow, longest) || reports[slow].Share <= costs[slow].Min ||
		fixed[slow].parts < int64(reports[slow].Share)*fixedUnit/2 {
		s.steps = 0
	}
	if s.steps < stuckSteps || s.again && s.steps < stuckAgain {
		return -1
	}
	s.steps, s.again = 0, true
	return slow
}

// farSlower reports whether a rank took more than one and a half times the median of the other
// ranks.
func farSlower(reports []Report, slow int, longest int64) bool {
	var others []int64
	for r, report := range reports {
		if t, ok := report.measured(); ok && r != slow {
			others = append(others, t)
		}
	}
	return len(others) > 0 && longest-median(others) > median(others)/2
}
