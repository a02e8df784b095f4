package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The drawing in docs equals the drawing of docs/recording.txt. The text shows the events that the
// README promises: a death without a lost sample, a join, and a result.
func TestDrawingIsUpToDate(t *testing.T) {
	text, err := os.ReadFile("../../docs/recording.txt")
	if err != nil {
		t.Fatal(err)
	}
	svg := filepath.Join(t.TempDir(), "recording.svg")
	if err := run(t.Context(), []string{"draw", "../../docs/recording.txt", svg}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../../docs/recording.svg"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/recording.svg is not that of docs/recording.txt (%v): go run ./scripts/recording draw docs/recording.txt docs/recording.svg", err)
	}
	for _, want := range []string{"$ kill -9 ", "recomputed 0; 3 peers go on", "$ elrun join ", " has joined", "done steps=354 peers=4 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the recording has no %q", want)
		}
	}
}

// The README has the SHA-256 of the result in the recording, because a run without a death and a
// join has the same result.
func TestResultIsThatOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../docs/recording.txt")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sum, _ := strings.Cut(string(text), "sha256=")
	if sum = strings.TrimSpace(sum); len(sum) != 64 || !strings.Contains(string(readme), sum) {
		t.Errorf("the README has no sha256 %q", sum)
	}
}

func TestFormat(t *testing.T) {
	lines := []line{{0, "$ elrun"}, {1500 * time.Millisecond, "a\tb"}, {1500 * time.Millisecond, ""}, {time.Hour, "<&>"}}
	got, err := parse(format(lines))
	if err != nil || !slices.Equal(got, lines) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"x\ty\n", "1\n", "2\ta\n1\tb\n", "-1\ta\n", "NaN\ta\n", "\n"} {
		if got, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// A drawing is valid XML, contains the whole text, and shortens pauses.
func TestDraw(t *testing.T) {
	long := strings.Repeat("word ", 50)
	got := draw([]line{{0, "$ a < b & c > d"}, {100 * time.Millisecond, long}, {time.Hour, strings.Repeat("x", 300)}})
	d := xml.NewDecoder(bytes.NewReader(got))
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok {
			text.Write(c)
		}
	}
	if s := text.String(); !strings.Contains(s, "$ a < b & c > d") || strings.Count(s, "word") != 50 || strings.Count(s, "x") != 300 {
		t.Errorf("text %q", s)
	}
	for _, want := range []string{`class="command"`, "delay:100ms", "delay:1600ms", ">3600.0 s<"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if !bytes.Equal(got, draw([]line{{0, "$ a < b & c > d"}, {100 * time.Millisecond, long}, {time.Hour, strings.Repeat("x", 300)}})) {
		t.Error("drawn again it differs")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"record"}, {"draw", "a"}, {"other", "a", "b"}} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
