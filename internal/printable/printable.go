// Package printable makes text from other hosts safe to print to a terminal: escape sequences in it
// could otherwise change or hide output.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s as one line without effects on a terminal. Characters that control a terminal or
// change the direction of text are escaped as in Go strings, and line ends become "; ". Use it for
// names, reasons and errors, which may come from any host.
func Line(s string) string {
	s = strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "; ")
	plain := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	// The usual case, and free of allocations.
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		// Invalid UTF-8 gives RuneError of one byte, which is escaped as \x and two digits.
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

// Plural returns n with the noun that fits it.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
