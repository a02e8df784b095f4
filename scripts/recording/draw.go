package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// line is a line of the terminal and its time since the start.
type line struct {
	at   time.Duration
	text string
}

// format returns lines as a text: the seconds, a tab and the line.
func format(lines []line) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&b, "%.1f\t%s\n", l.at.Seconds(), l.text)
	}
	return b.Bytes()
}

// parse is the inverse of format. Times must not decrease.
func parse(text []byte) (lines []line, err error) {
	for raw := range strings.Lines(string(text)) {
		seconds, rest, found := strings.Cut(strings.TrimSuffix(raw, "\n"), "\t")
		at, err := strconv.ParseFloat(seconds, 64)
		if !found || err != nil || !(at >= 0 && at < 1e6) {
			return nil, fmt.Errorf("line %d: want SECONDS, a tab and a text, got %q", len(lines)+1, raw)
		}
		l := line{time.Duration(at * float64(time.Second)).Round(100 * time.Millisecond), rest}
		if len(lines) > 0 && l.at < lines[len(lines)-1].at {
			return nil, fmt.Errorf("line %d: the time decreases", len(lines)+1)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// These are sizes of the drawing in pixels, and of a line in characters.
const (
	width   = 900
	margin  = 16
	indent  = 64 // distance from the time to the text
	spacing = 19
	columns = 100
)

// maxPause bounds the time between two lines in the animation.
const maxPause = 1500 * time.Millisecond

// draw returns lines as an SVG document in which they appear one after the other. A viewer without
// animations shows all of them.
func draw(lines []line) []byte {
	var body bytes.Buffer
	row, shown, last := 0, time.Duration(0), time.Duration(0)
	for _, l := range lines {
		shown += min(l.at-last, maxPause)
		last = l.at
		fmt.Fprintf(&body, `<g style="animation-delay:%dms">`, shown.Milliseconds())
		fmt.Fprintf(&body, `<text x="%d" y="%d" class="time">%.1f s</text>`, margin, baseline(row), l.at.Seconds())
		class := "out"
		if strings.HasPrefix(l.text, "$ ") {
			class = "command"
		}
		for _, part := range wrap(l.text) {
			fmt.Fprintf(&body, `<text x="%d" y="%d" class="%s" xml:space="preserve">%s</text>`, margin+indent, baseline(row), class, escape(part))
			row++
		}
		body.WriteString("</g>\n")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="monospace" font-size="13">`+"\n", width, baseline(row-1)+margin)
	b.WriteString("<title>A job in which a peer is killed and another one joins</title>\n")
	b.WriteString("<style>g{animation:appear 1ms both}@keyframes appear{from{opacity:0}to{opacity:1}}" +
		".time{fill:#7d8590}.out{fill:#d1d7e0}.command{fill:#7ee787;font-weight:bold}</style>\n")
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#151b23"/>` + "\n")
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// baseline returns the y coordinate of a row.
func baseline(row int) int { return margin + (row+1)*spacing - 5 }

// wrap cuts a text into lines of at most columns bytes, at spaces if possible. Lines after the
// first are indented.
func wrap(text string) (parts []string) {
	for len(text) > columns {
		at := strings.LastIndexByte(text[:columns], ' ')
		if at <= len(continued) {
			at = columns
		}
		parts = append(parts, text[:at])
		text = continued + strings.TrimPrefix(text[at:], " ")
	}
	return append(parts, text)
}

// continued is the indentation of the lines of a text after the first.
const continued = "    "

// escape returns text with XML's special characters escaped.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
