// Package printable makes text of other hosts harmless for a terminal.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s as one line that a terminal only shows: whatever could control it, or
// reorder its text, is escaped as in Go, and line ends become "; ". Names, reasons and errors
// may come from anybody.
func Line(s string) string {
	s = strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "; ")
	plain := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if plain(r) {
			out.WriteString(s[:n])
		} else {
			quoted := strconv.Quote(s[:n])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return out.String()
}
