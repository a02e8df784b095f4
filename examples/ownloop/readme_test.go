package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown returns a fenced block of a document, the first one of a language.
func shown(t *testing.T, name, language string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```"+language+"\n")
	block, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatalf("%s has no block of %s", name, language)
	}
	return block
}

// loops returns the training function in the README, without elrun and with it.
func loops(t *testing.T) (before, after string) {
	t.Helper()
	for line := range strings.Lines(shown(t, "README.md", "diff")) {
		if line[0] != '+' {
			before += line[1:]
		}
		if line[0] != '-' {
			after += line[1:]
		}
	}
	return before, after
}

// elrun adds only a few lines to a training loop, and removes only the first line of the loop.
func TestAddedLines(t *testing.T) {
	was, is := loops(t)
	before, after := strings.Split(was, "\n"), strings.Split(is, "\n")
	if added := len(after) - len(before); added > 10 {
		t.Errorf("%d lines more than before, want at most 10", added)
	}
	for _, line := range before {
		kept := slices.ContainsFunc(after, func(l string) bool { return strings.HasPrefix(l, line) })
		for _, changed := range []string{"for step", "sum := gradient", "return nil"} {
			kept = kept || strings.HasPrefix(strings.TrimSpace(line), changed)
		}
		if !kept {
			t.Errorf("%q is missing", line)
		}
	}
}

// The README and the program in docs/quickstart.md have the same loop. With and without elrun the
// program compiles, and without other peers both programs have the same final weights.
func TestProgramsAlone(t *testing.T) {
	before, after := loops(t)
	elastic := shown(t, "docs/quickstart.md", "go")
	if !strings.Contains(elastic, after) {
		t.Fatal("the README and docs/quickstart.md show different loops")
	}
	plain := strings.Replace(elastic, after, before, 1)
	for _, name := range []string{"collective", "elastic", "launch"} {
		plain = strings.Replace(plain, "\t\"github.com/elrun/elrun/"+name+"\"\n", "", 1)
	}
	for i, program := range []string{plain, elastic} {
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
		if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("program %d: %v\n%s", i, err, out)
		}
		out, err := exec.Command(binary).CombinedOutput()
		want := "after 300 steps: y = 1.0 + 2.0 x\n"
		result, found := strings.CutSuffix(string(out), want)
		// Package launch prints the result when the group is closed, as elrun does.
		if err != nil || !found || strings.HasPrefix(result, "done steps=300 peers=1 sha256=") != (i == 1) || strings.Count(result, "\n") != i {
			t.Errorf("program %d printed %q (%v), want %q", i, out, err, want)
		}
	}
}
