package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programs returns the complete programs in the README, in order.
func programs(t *testing.T) (all []string) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(b), "```go\n") {
		if program, _, ok := strings.Cut(part, "```\n"); ok && strings.HasPrefix(program, "package main\n") {
			all = append(all, program)
		}
	}
	return all
}

// elrun adds only a few lines to a loop, and removes none but the loop's head.
func TestAddedLines(t *testing.T) {
	shown := programs(t)
	if len(shown) != 2 {
		t.Fatalf("the README shows %d programs, want one before and one after", len(shown))
	}
	var bodies [2][]string
	for i, program := range shown {
		_, rest, _ := strings.Cut(program, "\nfunc train(")
		body, _, _ := strings.Cut(rest, "\n}\n")
		bodies[i] = strings.Split(body, "\n")
	}
	before, after := bodies[0], bodies[1]
	if added := len(after) - len(before); added > 10 {
		t.Errorf("%d lines more than before, want at most 10", added)
	}
	for _, line := range before {
		text, _, _ := strings.Cut(line, " //")
		kept := slices.ContainsFunc(after, func(l string) bool { return strings.HasPrefix(l, text) })
		for _, changed := range []string{"for step", "sum := gradient", "return nil"} {
			kept = kept || strings.HasPrefix(strings.TrimSpace(line), changed)
		}
		if !kept {
			t.Errorf("%q has gone", line)
		}
	}
}

// Both programs compile, and alone they have the same final weights.
func TestProgramsAlone(t *testing.T) {
	for i, program := range programs(t) {
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
		if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("program %d: %v\n%s", i, err, out)
		}
		out, err := exec.Command(binary).CombinedOutput()
		if want := "after 500 steps: [1.00"; err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("program %d printed %q (%v), want %q...", i, out, err, want)
		}
	}
}
