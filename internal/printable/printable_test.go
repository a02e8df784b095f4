package printable

import (
	"strings"
	"testing"
	"unicode"
)

// Control characters, direction marks and invalid UTF-8 are escaped. Printable text stays as it is.
func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 日 text": "plain ü 日 text", "a\nb\n": "a; b", "\x1b[2J": `\x1b[2J`, "a\rb\t": `a\rb\t`, "\u202eabc": `\u202eabc`,
		"\xff\xfe": `\xff\xfe`, "\u009b1m": `\u009b1m`, "": "",
	} {
		if got := Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzLine checks that the result has only printable characters, whatever the text.
func FuzzLine(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Fuzz(func(t *testing.T, s string) {
		if out := Line(s); strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q becomes %q", s, out)
		}
	})
}
