package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const section = "### it waits for ever\n\n`a/b.go` found by `TestB` in `./a`\n\n```diff\n-\tif done {\n+\tif false {\n```\n"

func TestParse(t *testing.T) {
	got, err := parse("# Planted bugs\n\nText.\n\n" + section + "\n" + section)
	want := bug{"it waits for ever", "a/b.go", "\tif done {\n", "\tif false {\n", "./a", "TestB"}
	if err != nil || len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"no diff":      "### x\n`a` found by `T` in `./a`\n",
		"open diff":    strings.TrimSuffix(section, "```\n"),
		"no test":      strings.Replace(section, "`TestB`", "a test", 1),
		"context line": strings.Replace(section, "-\tif", " \tif", 1),
		"no change":    strings.Replace(section, "false", "done", 1),
	} {
		if got, err := parse(text); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestApply(t *testing.T) {
	b := bug{old: "\tx\n", new: "\ty\n"}
	if got, err := b.apply("\tx\n\txx\n"); got != "\ty\n\txx\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, source := range []string{"", "\txx\n", "\tx\n\tx\n", " \tx\n"} {
		if got, err := b.apply(source); err == nil {
			t.Errorf("%q became %q", source, got)
		}
	}
}

// A bug in the list of another package is an error.
func TestParseList(t *testing.T) {
	if got, err := parseList("a.md", section); err != nil || len(got) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, name := range []string{"a/b.md", "b.md", "a.txt"} {
		if got, err := parseList(name, section); err == nil || !strings.Contains(err.Error(), lists+"/a.md") {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// There is no list of planted bugs in docs.
func TestNoOldList(t *testing.T) {
	if _, err := os.Stat(filepath.Join("..", "..", "docs", "planted-bugs.md")); !os.IsNotExist(err) {
		t.Errorf("docs/planted-bugs.md is there (%v): move its entries to the lists of their packages in %s", err, lists)
	}
}

// Each bug in the lists fits the current source, and names an existing test.
func TestList(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, b := range readList(t, root) {
		source, err := os.ReadFile(filepath.Join(root, b.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.apply(string(source)); err != nil {
			t.Error(err)
		}
		if !hasTest(t, filepath.Join(root, b.pkg), b.test) {
			t.Errorf("%q: there is no %s in %s", b.name, b.test, b.pkg)
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	begin := "func "
	if filepath.Ext(dir) == ".py" {
		files, begin = []string{dir}, "\ndef "
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), begin+name+"(") {
			return true
		}
	}
	return false
}

// readList returns the bugs in all lists.
func readList(t *testing.T, root string) []bug {
	t.Helper()
	bugs, err := readLists(root)
	if err != nil || len(bugs) < 500 {
		t.Fatalf("%d bugs, %v", len(bugs), err)
	}
	return bugs
}
