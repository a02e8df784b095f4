package loadbal

// unit is 1 in ratios: relative errors, gains and the like.
const unit = 1 << 16

// medianWindow is how many steps a meter looks back.
const medianWindow = 5

// medianFilter measures something that changes in jumps and is disturbed by outliers: it is
// the median of the last few values. Two neighbouring values that are both far off on
// the same side are taken for a change: what was before them is forgotten. The zero
// meter has seen nothing.
type medianFilter struct {
	window []int64 // the latest last
}

// Add takes a value, above 0. It reports whether there was a change.
func (m *medianFilter) Add(value int64) (changed bool) {
	before := m.Value()
	m.window = append(m.window, value)
	if n := len(m.window); n >= 3 && deviationSign(m.window[n-2], before) != 0 && deviationSign(m.window[n-2], before) == deviationSign(value, before) {
		m.window, changed = m.window[n-2:], true
	}
	if len(m.window) > medianWindow {
		m.window = m.window[1:]
	}
	return changed
}

// Value is the median, 0 if there was no value yet.
func (m *medianFilter) Value() int64 { return median(m.window) }

// deviationSign is where value is as seen from middle: 0 near it, within a quarter.
func deviationSign(value, middle int64) int {
	switch {
	case value > middle+middle/4:
		return 1
	case value < middle-middle/4:
		return -1
	}
	return 0
}

// quotient is x/y times unit, at most 16 either way, of a y above 0.
func quotient(x, y int64) int64 {
	y = max(1, y)
	if abs(x)/16 >= y {
		return max(-16, min(16, x/y)) * unit
	}
	return x * unit / y
}

func abs(x int64) int64 { return max(x, -x) }
