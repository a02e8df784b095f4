package loadbal

// stuckDetector finds a rank whose fixed part cannot be what it was taken for. It is learned from
// steps between which the share changed, so from few in the beginning, when the noise is not
// known yet. A part that was learned too large keeps itself: shares seem to change nothing,
// stay, and nothing is learned any more, although the rank holds up all others. A part that
// is as large as it seems leaves the rank that holds up the others with the least share.
type stuckDetector struct {
	rank  int // that took longest
	steps int // in a row in which it did
}

// stuckSteps is how many steps in a row a rank has to take far longer than the others: one of
// them may be noise.
const stuckSteps = 4

// observe takes the reports of a step and the fixed parts of the ranks. It returns the rank
// whose part is to be forgotten, or -1.
func (d *stuckDetector) observe(reports []Report, fixed []fixedPart, costs []Cost) int {
	slow, longest := 0, int64(0)
	for r, report := range reports {
		if t, ok := report.measured(); ok && t > longest {
			slow, longest = r, t
		}
	}
	if slow != d.rank {
		d.rank, d.steps = slow, 0
	}
	if d.steps++; !farSlower(reports, slow, longest) || reports[slow].Share <= costs[slow].Min ||
		fixed[slow].parts < int64(reports[slow].Share)*fixedUnit/2 {
		d.steps = 0
	}
	if d.steps < stuckSteps {
		return -1
	}
	d.steps = 0
	return slow
}

// farSlower reports whether a rank took half as long again as the others do.
func farSlower(reports []Report, slow int, longest int64) bool {
	var others []int64
	for r, report := range reports {
		if t, ok := report.measured(); ok && r != slow {
			others = append(others, t)
		}
	}
	return len(others) > 0 && longest-median(others) > median(others)/2
}
