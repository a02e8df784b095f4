package lint_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// write creates files in a new folder and returns the folder. The keys are paths with slashes.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestLoad checks which files belong to the module. Files for other systems belong to it; files
// that the go command ignores do not belong to it.
func TestLoad(t *testing.T) {
	root := write(t, map[string]string{
		"go.mod":              "module " + lint.Module,
		"a.go":                "package a",
		"b/b.go":              "package b",
		"b/b_test.go":         "package b_test",
		"b/b_plan9.go":        "//go:build plan9\n\npackage b",
		"b/testdata/bad.go":   "nonsense",
		"b/readme.txt":        "text",
		"c/go.mod":            "module other",
		"c/c.go":              "package c",
		"e/f/go.mod":          "// Figures.\nmodule " + lint.Module + "/e/f\n\ngo 1.26.0\n",
		"e/f/g/g.go":          "package g",
		".hidden/h.go":        "nonsense",
		"_old/o.go":           "nonsense",
		"d/e/e.go":            "package e",
		"data/mnist/notes.md": "text",
	})
	packages, err := lint.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, p := range packages {
		for _, f := range p.Files {
			got[p.Dir] = append(got[p.Dir], f.Name)
		}
	}
	want := map[string][]string{
		".":     {"a.go"},
		"b":     {"b/b.go", "b/b_plan9.go", "b/b_test.go"},
		"d/e":   {"d/e/e.go"},
		"e/f/g": {"e/f/g/g.go"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if modules, err := lint.Modules(root); err != nil || !slices.Equal(modules, []string{".", "e/f"}) {
		t.Errorf("modules %q (%v)", modules, err)
	}
}

func TestLoadReportsSyntaxErrors(t *testing.T) {
	root := write(t, map[string]string{"b/b.go": "package b\nfunc {"})
	_, err := lint.Load(root)
	if err == nil || !strings.Contains(err.Error(), "b/b.go:2") {
		t.Errorf("got %v, want the place of the error", err)
	}
}

// TestProblemString checks that a problem is printed in the form that editors turn into a link.
func TestProblemString(t *testing.T) {
	p := lint.Problem{File: "ring/a.go", Line: 3, Text: "bad"}
	if got := p.String(); got != "ring/a.go:3: bad" {
		t.Errorf("got %q", got)
	}
	p.Line = 0
	if got := p.String(); got != "ring/a.go: bad" {
		t.Errorf("got %q", got)
	}
}
