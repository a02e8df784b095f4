package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// There is a page for elrun and for each of its commands, which names all flags and arguments, and of which a formatter of manual pages has
// nothing to say.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if stdout, stderr, status := command(t, "man-pages", dir); status != 0 || stdout+stderr != "" {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	pages := map[string][]string{"elrun.1": {"status", "run", `75`}}
	for _, n := range model(t).Children {
		if n.Hidden {
			continue
		}
		want := []string{n.Help}
		for _, f := range n.Flags {
			want = append(want, "--"+f.Name)
		}
		pages["elrun-"+n.Name+".1"] = want
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) != len(pages) {
		t.Errorf("%d pages, want %d: %v, %v", len(all), len(pages), all, err)
	}
	for name, want := range pages {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), `\-`, "-")
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %s", name, w)
			}
		}
	}
	checkers := [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}}
	found := false
	for _, checker := range checkers {
		if _, err := exec.LookPath(checker[0]); err != nil {
			continue
		}
		found = true
		out, err := exec.CommandContext(t.Context(), checker[0], append(checker[1:], all...)...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") { // the pages are those of a version
				t.Errorf("%s: %v: %s", checker[0], err, line)
			}
		}
	}
	if !found {
		t.Skip("no mandoc: install it (Debian: apt-get install mandoc)")
	}
}

func TestEscapeRoff(t *testing.T) {
	for in, want := range map[string]string{"a-b": `a\-b`, `\n`: `\en`, ".x": `\&.x`, "'x": `\&'x`, "a\nb": "a b", "": ""} {
		if got := escapeRoff(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
