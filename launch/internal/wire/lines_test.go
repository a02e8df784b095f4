package wire

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// splitWhole is a slow reference implementation, which gets the whole stream at once.
func splitWhole(stream, prefix string, limit int) string {
	var out strings.Builder
	line := func(s string) { out.WriteString(prefix + s + "\n") }
	for {
		s, rest, found := strings.Cut(stream, "\n")
		for len(s) > limit {
			line(s[:limit])
			s = s[limit:]
		}
		if found || s != "" {
			line(s)
		}
		if !found {
			return out.String()
		}
		stream = rest
	}
}

// The lines do not depend on the division of the stream into parts.
func TestSplitterTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		parts := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,12}`)).Draw(t, "parts")
		s := Splitter{Prefix: "[3] ", Max: limit}
		var got bytes.Buffer
		for _, p := range parts {
			block := s.Feed([]byte(p))
			if len(block) > 0 && block[len(block)-1] != '\n' {
				t.Fatalf("block %q does not end with a line", block)
			}
			got.Write(block)
			if len(s.line) > limit {
				t.Fatalf("holds %d bytes, at most %d", len(s.line), limit)
			}
		}
		got.Write(s.Flush())
		if want := splitWhole(strings.Join(parts, ""), "[3] ", limit); got.String() != want {
			t.Fatalf("parts %q: got %q, want %q", parts, got.String(), want)
		}
	})
}

func TestSplitterNoLineEnd(t *testing.T) {
	s := Splitter{Max: MaxLine}
	part := bytes.Repeat([]byte("x"), 1000)
	lines := 0
	for range 1000 {
		lines += bytes.Count(s.Feed(part), []byte("\n"))
		if cap(s.line) > 4*MaxLine {
			t.Fatalf("holds %d bytes", cap(s.line))
		}
	}
	if want := 1000 * 1000 / MaxLine; lines != want {
		t.Errorf("%d pieces, want %d", lines, want)
	}
}

func TestSplitterFlushTwice(t *testing.T) {
	s := Splitter{Prefix: "> ", Max: 10}
	s.Feed([]byte("end"))
	if got := string(s.Flush()); got != "> end\n" {
		t.Errorf("got %q", got)
	}
	if got := s.Flush(); got != nil {
		t.Errorf("second flush gave %q", got)
	}
}
