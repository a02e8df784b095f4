package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// unknown is the text for a value that is not known.
const unknown = "-"

// piece is a part of a line that may be left out. Of several, that of the greatest weight goes first; one of weight 0
// stays.
type piece struct {
	Span
	weight int
}

// spread returns a line with pieces at its left and at its right end, with two spaces between pieces. It leaves out
// pieces until the others fit.
func spread(width int, left, right []piece) Line {
	for {
		l, r := join(left), join(right)
		n, m := cells(l.String()), cells(r.String())
		gap := 0
		if n > 0 && m > 0 {
			gap = 2
		}
		i, j := heaviest(left), heaviest(right)
		switch {
		case n+gap+m <= width || i < 0 && j < 0:
			return append(l.pad(max(n, width-m)), r...)
		case j < 0 || i >= 0 && left[i].weight > right[j].weight:
			left = slices.Delete(left, i, i+1)
		default:
			right = slices.Delete(right, j, j+1)
		}
	}
}

// heaviest returns the index of the piece that goes first, -1 if all stay.
func heaviest(pieces []piece) int {
	at := -1
	for i, p := range pieces {
		if p.weight > 0 && (at < 0 || p.weight >= pieces[at].weight) {
			at = i
		}
	}
	return at
}

// join joins pieces with two spaces.
func join(pieces []piece) (l Line) {
	for _, p := range pieces {
		if p.Text == "" {
			continue
		}
		if len(l) > 0 {
			l = append(l, Span{"  ", Plain})
		}
		l = append(l, p.Span)
	}
	return l.fit(math.MaxInt32)
}

// wrap breaks a text into lines of at most width cells at its spaces.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && cells(line)+1+cells(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// duration formats a duration for people.
func duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// milliseconds converts a time of the model. One that no duration can have becomes 0.
func milliseconds(ms float64) time.Duration {
	if !(math.Abs(ms) < math.MaxInt64/float64(time.Millisecond)) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// size formats a number of bytes in three characters or four.
func size(n int64) string {
	x, unit := float64(n), 0
	for ; x >= 999.5 && unit < 6; unit++ {
		x /= 1000
	}
	if unit == 0 || x >= 9.95 {
		return fmt.Sprintf("%.0f%c", x, "BkMGTPE"[unit])
	}
	return fmt.Sprintf("%.1f%c", x, "BkMGTPE"[unit])
}

// count formats a number that is unknown if it is 0.
func count[T int | int64 | uint64](n T) string {
	if n == 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// share formats a part of a whole in percent.
func share(part, whole float64, decimals int) string {
	if !(whole > 0) || math.IsInf(part, 0) || math.IsNaN(part) {
		return unknown
	}
	return fmt.Sprintf("%.*f%%", decimals, 100*part/whole)
}

// texts returns lines in one style.
func texts(style Style, lines ...string) (all []Line) {
	for _, l := range lines {
		all = append(all, Line{{l, style}})
	}
	return all
}
