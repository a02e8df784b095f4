package say

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/wire"
)

// The progress line takes one row of the terminal, also after the terminal has become narrower.
func TestProgressIsCut(t *testing.T) {
	var screen strings.Builder
	p := newPrinter(nil, nil)
	p.streams[wire.ToStderr] = &LineWriter{W: &screen}
	line := strings.Repeat("x", 79)
	for _, c := range []struct {
		columns int
		line    string
		want    string
	}{{0, line + "a", line + "a"}, {81, line + "b", line + "b"}, {80, line + "c", line}, {50, line + "d", line[:49]}, {1, line + "e", ""},
		{6, "\u7a7a\u7a7a\u7a7a", "\u7a7a\u7a7a"}, {6, "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", "\u00e4\u00e4\u00e4\u00e4\u00e4"}} {
		screen.Reset()
		p.columns = func() int { return c.columns }
		p.drawProgress(c.line)
		if got := screen.String(); got != "\r\x1b[K"+c.want {
			t.Errorf("%d columns: drew %q, want %q", c.columns, got, c.want)
		}
	}
}
