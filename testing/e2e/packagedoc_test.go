package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// programOf returns the program in a package comment: the indented lines from "package main" on.
func programOf(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", dir, "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "//\tpackage main\n")
	if !found {
		t.Fatalf("the comment of %s has no program", dir)
	}
	program := "package main\n"
	for line := range strings.Lines(rest) {
		text, indented := strings.CutPrefix(line, "//\t")
		if !indented && line != "//\n" {
			break
		}
		if !indented {
			text = "\n"
		}
		program += text
	}
	return program
}

// The program at the beginning of a package's documentation runs, alone and with two peers.
func TestPackageDocs(t *testing.T) {
	for dir, want := range map[string]string{
		"launch":  "peers, sum of the ranks",
		"elastic": "4.49999",
		"trainer": "y = 1.0 + 2.0 x",
	} {
		t.Run(dir, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			binary := process.UserProgram(t, "doc-"+dir, programOf(t, dir))
			for _, line := range [][]string{{binary}, {process.Elrun(), "-n", "2", binary}} {
				out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%v: %v, want %q in\n%s", line, err, want, out)
				}
			}
		})
	}
}
