package top

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/elrun/elrun/internal/printable"
)

// Style tells how a text stands out. No meaning is in a style alone, as some terminals show none.
type Style int

// The styles.
const (
	Plain  Style = iota
	Strong       // titles
	Faint        // what is over, and heads of tables
	Good         // what is as it should be
	Warn         // what waits
	Bad          // what has failed
	Chosen       // the chosen row
)

// sequence returns the escape sequence that begins a style.
func (s Style) sequence() string {
	switch s {
	case Strong:
		return "\x1b[1m"
	case Faint:
		return "\x1b[2m"
	case Good:
		return "\x1b[32m"
	case Warn:
		return "\x1b[33m"
	case Bad:
		return "\x1b[1;31m"
	case Chosen:
		return "\x1b[7m"
	}
	return ""
}

// Span is a text in one style.
type Span struct {
	Text  string
	Style Style
}

// Line is a line of a frame.
type Line []Span

// String returns the line without styles.
func (l Line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// fit returns the line without what a terminal could take for a command, and cut to width cells.
func (l Line) fit(width int) Line {
	var fitted Line
	for _, s := range l {
		s.Text = cut(printable.Line(s.Text), width)
		width -= cells(s.Text)
		if s.Text != "" {
			fitted = append(fitted, s)
		}
	}
	return fitted
}

// pad returns the line with spaces up to width cells.
func (l Line) pad(width int) Line {
	if n := width - cells(l.String()); n > 0 {
		return append(l[:len(l):len(l)], Span{strings.Repeat(" ", n), Plain})
	}
	return l
}

// Frame is what a screen shows, from its first line on.
type Frame []Line

// Text returns the frame without styles, with a line end after each line and no spaces before it.
func (f Frame) Text() string {
	var b strings.Builder
	for _, l := range f {
		b.WriteString(strings.TrimRight(l.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// Styled returns the frame with escape sequences for its styles, and line ends between the lines.
func (f Frame) Styled() string {
	var b strings.Builder
	for i, l := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, s := range l {
			begin := s.Style.sequence()
			b.WriteString(begin)
			b.WriteString(s.Text)
			if begin != "" {
				b.WriteString("\x1b[m")
			}
		}
	}
	return b.String()
}

// cells returns the number of cells of a terminal that a text takes. Terminals differ in their width of some
// sequences of characters: the larger one counts.
func cells(s string) int {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return len(s)
	}
	return max(ansi.StringWidth(s), ansi.StringWidthWc(s))
}

// cut shortens a text to at most width cells. A tilde stands for what is left out.
func cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	if cells(s) <= width {
		return s
	}
	// Characters may take no cell, so a text may be much longer than its width.
	s = s[:min(len(s), 4096)]
	end, n := 0, 0
	for i, r := range s {
		if n += cells(string(r)); n > width-1 {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	for end > 0 && cells(s[:end]) > width-1 {
		end--
	}
	return strings.ToValidUTF8(s[:end], "") + "~"
}
