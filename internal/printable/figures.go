package printable

import (
	"math"
	"strings"
)

// Columns returns the number of columns of a terminal that a line takes at most. Characters beyond the European scripts
// count as two, which most of them take, but for the characters of Spark.
func Columns(line string) (n int) {
	for _, r := range line {
		n += columns(r)
	}
	return n
}

// columns returns the number of columns of a character.
func columns(r rune) int {
	const firstWide = 0x1100 // of Hangul, the first script of East Asia in Unicode
	if r < firstWide || r >= '▁' && r <= '█' {
		return 1
	}
	return 2
}

// Cut cuts a line to a number of columns of a terminal.
func Cut(line string, most int) string {
	for i, r := range line {
		if most -= columns(r); most < 0 {
			return line[:i]
		}
	}
	return line
}

// Bar returns a bar of a width with the part from 0 to 1 filled.
func Bar(part float64, width int) string {
	n := max(0, width-2)
	full := min(max(0, int(part*float64(n)+0.5)), n)
	return "[" + strings.Repeat("=", full) + strings.Repeat("-", n-full) + "]"
}

// Spark draws values as a line of at most width characters (a sparkline), each of which stands for the mean of as many values. The
// lowest level is the least value or, if zero is set, 0.
func Spark(values []float64, width int, zero, ascii bool) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	if ascii {
		levels = []rune("_.-~=+*#")
	}
	width = min(width, len(values))
	if width <= 0 {
		return ""
	}
	means := make([]float64, width)
	for i := range means {
		from, to := i*len(values)/width, (i+1)*len(values)/width
		for _, v := range values[from:to] {
			means[i] += v / float64(to-from)
		}
	}
	least, most := math.Inf(1), math.Inf(-1)
	if zero {
		least = 0
	}
	for _, v := range means {
		least, most = min(least, v), max(most, v)
	}
	var b strings.Builder
	for _, v := range means {
		level := 0
		if span := most - least; span > 0 && !math.IsInf(span, 0) && !math.IsNaN(span) {
			level = min(max(0, int((v-least)/span*float64(len(levels)))), len(levels)-1)
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}
