package loadbal

// unit is 1 in the fixed-point ratios of this package, such as relative errors and gains: 16
// fractional bits.
const unit = 1 << 16

// medianWindow is the greatest number of values in a medianFilter.
const medianWindow = 5

// medianFilter is a running median: a robust mean of a value that changes in jumps and has
// outliers. Two successive values that are both far from the median, on the same side, count as a
// jump: the filter forgets all values before them. The zero medianFilter is ready for use.
type medianFilter struct {
	window []int64 // at most medianWindow values, the latest last
}

// Add records a value, which must be above 0. It reports whether there was a jump.
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

// Value returns the median, 0 before the first value.
func (m *medianFilter) Value() int64 { return median(m.window) }

// deviationSign returns 1 if value is above middle by more than a quarter, -1 if value is below
// middle by more than a quarter, and 0 otherwise.
func deviationSign(value, middle int64) int {
	switch {
	case value > middle+middle/4:
		return 1
	case value < middle-middle/4:
		return -1
	}
	return 0
}

// quotient returns x/y times unit, for x/y limited to the range from -16 to 16. A y below 1 counts
// as 1.
func quotient(x, y int64) int64 {
	y = max(1, y)
	if abs(x)/16 >= y {
		return max(-16, min(16, x/y)) * unit
	}
	return x * unit / y
}

// abs returns the absolute value of x.
func abs(x int64) int64 { return max(x, -x) }
