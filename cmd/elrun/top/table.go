package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/elrun/elrun/internal/printable"
)

// cell is a text of a table.
type cell struct {
	text   string
	number float64 // by which a column of numbers is sorted
	style  Style
}

// word returns a cell with a text of others; a dash stands for none.
func word(text string) cell {
	if text == "" {
		text = unknown
	}
	return cell{text: cut(printable.Line(text), 200)}
}

// number returns a cell with a number that is unknown if it is not positive.
func number(x float64, decimals int) cell {
	if !(x > 0) || math.IsInf(x, 0) {
		return cell{text: unknown}
	}
	return cell{text: fmt.Sprintf("%.*f", decimals, min(x, 1e15)), number: x}
}

// Room that a column may take.
const (
	least = 8  // of a column that is narrowed
	ample = 12 // of a column that takes what is left, and is narrowed
	most  = 24 // of a column that is narrowed, unless it takes what is left
	extra = 20 // keep of the columns that only a wide screen shows
)

// column is a column of a table.
type column struct {
	name    string
	numbers bool // at the right of the column, and sorted with the greatest first
	narrow  bool // may be narrowed
	rest    bool // takes what is left of the width
	keep    int  // the column with the greatest goes first if there is no room
}

// row is a row of a table. Its key names what it shows, and stays when the row moves.
type row struct {
	key   string
	cells []cell
	style Style
	last  bool // is below the others, as it is over
}

// table is the rows that a screen shows, sorted by a column.
type table struct {
	what    string // of the rows, in the plural
	columns []column
	rows    []row
	sorted  int // index of the column; -1 for the order of the rows
}

// sort sorts the rows by a column.
func (t *table) sort(by int) {
	t.sorted = by
	slices.SortStableFunc(t.rows, func(a, b row) int {
		switch {
		case a.last != b.last:
			return map[bool]int{true: 1, false: -1}[a.last]
		case by < 0:
			return 0
		case t.columns[by].numbers:
			return cmp.Compare(b.cells[by].number, a.cells[by].number)
		}
		return strings.Compare(a.cells[by].text, b.cells[by].text)
	})
}

// filter keeps the rows that have a text in a cell, in capitals or not.
func (t *table) filter(text string) {
	text = strings.ToLower(text)
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool {
		return !slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), text) })
	})
}

// find returns the index of the row with a key, else 0.
func (t *table) find(key string) int {
	return max(0, slices.IndexFunc(t.rows, func(r row) bool { return r.key == key }))
}

// draw returns the head of the table, and the page of its rows that has the chosen one, in at most height lines. mark is whether
// the chosen row is marked.
func (t *table) draw(width, height int, chosen string, mark bool) []Line {
	if height <= 0 {
		return nil
	}
	shown, widths, gap := t.layout(width)
	head := row{style: Faint}
	for _, c := range t.columns {
		head.cells = append(head.cells, cell{text: c.name})
	}
	lines := []Line{t.line(head, " ", shown, widths, gap)}
	per, at := height-1, t.find(chosen)
	if per <= 0 {
		return lines
	}
	from := at / per * per
	for i := from; i < min(from+per, len(t.rows)); i++ {
		r, begin := t.rows[i], " "
		if i == at && mark {
			begin, r.style = ">", Chosen
		}
		lines = append(lines, t.line(r, begin, shown, widths, gap))
	}
	return lines
}

// page tells which rows a height shows; "" if it shows all.
func (t *table) page(height int, chosen string) string {
	per := height - 1
	if per <= 0 || len(t.rows) <= per {
		return ""
	}
	from := t.find(chosen) / per * per
	return fmt.Sprintf("%d to %d of %d", from+1, min(from+per, len(t.rows)), len(t.rows))
}

// line returns a row.
func (t *table) line(r row, begin string, shown, widths []int, gap int) Line {
	l := Line{{begin, r.style}}
	for n, i := range shown {
		c, style := r.cells[i], r.style
		if style == Plain {
			style = c.style
		}
		text := cut(c.text, widths[n])
		space := strings.Repeat(" ", max(0, widths[n]-cells(text)))
		if t.columns[i].numbers {
			text = space + text
		} else {
			text += space
		}
		if n > 0 {
			text = strings.Repeat(" ", gap) + text
		}
		l = append(l, Span{text, style})
	}
	return l
}

// layout returns the columns that fit into a width, their widths, and the space between them.
func (t *table) layout(width int) (shown, widths []int, gap int) {
	natural := make([]int, len(t.columns))
	for i, c := range t.columns {
		natural[i] = cells(c.name)
		for _, r := range t.rows {
			natural[i] = max(natural[i], cells(r.cells[i].text))
		}
		if c.narrow && !c.rest {
			natural[i] = min(natural[i], most)
		}
		shown = append(shown, i)
	}
	for {
		widths = nil
		for _, i := range shown {
			widths = append(widths, natural[i])
		}
		heaviest := 0
		for n, i := range shown {
			if t.columns[i].keep > t.columns[shown[heaviest]].keep {
				heaviest = n
			}
		}
		for _, gap = range []int{2, 1} {
			if t.narrow(shown, widths, width-1-gap*(len(shown)-1), gap == 1) {
				return shown, widths, gap
			}
			if t.columns[shown[heaviest]].keep >= extra {
				break
			}
		}
		if len(shown) == 1 {
			return shown, widths, gap
		}
		shown = slices.Delete(shown, heaviest, heaviest+1)
	}
}

// narrow narrows columns until their widths fit into room, and reports whether they do. Unless all is set it narrows only
// the column that takes what is left.
func (t *table) narrow(shown, widths []int, room int, all bool) bool {
	sum := 0
	for _, w := range widths {
		sum += w
	}
	for sum > room {
		widest := -1
		for n, i := range shown {
			c := t.columns[i]
			narrowest := least
			if c.rest {
				narrowest = ample
			}
			if (c.rest || c.narrow && all) && widths[n] > narrowest && (widest < 0 || widths[n] > widths[widest]) {
				widest = n
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
		sum--
	}
	return true
}
