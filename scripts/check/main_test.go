package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tree returns some packages.
func tree() []listed {
	var all []listed
	for _, dir := range []string{"a", "a/b", "c", "d", "slow"} {
		all = append(all, listed{ImportPath: "m/" + dir, Dir: dir})
	}
	return all
}

func TestPlan(t *testing.T) {
	for _, c := range []struct{ files, tested, left string }{
		{"", "", ""},
		{"README.md CHANGELOG.md go.mod", "", ""},
		{"a/x.go", "m/a", ""},
		{"a/b/x.go a/b/y.go", "m/a/b", ""},
		{"a/b/testdata/fuzz/F/1", "m/a/b", ""},
		{"a/testdata/b/x.go", "m/a", ""},
		{"a/x.go a/b/x.go", "m/a m/a/b", ""},
		{"d/x_test.go", "m/d", ""},
		{"slow/x.go c/deleted.go", "m/c", "m/slow"},
		{"nowhere/x.go", "", ""},
	} {
		p := planOf(tree(), strings.Fields(c.files), regexp.MustCompile("/slow$"))
		got := fmt.Sprint(p.tested, p.left)
		want := fmt.Sprint(strings.Fields(c.tested), strings.Fields(c.left))
		if got != want {
			t.Errorf("%q: got %s, want %s", c.files, got, want)
		}
		if want := strings.Fields(c.tested + " " + c.left); !slices.Equal(p.changed, want) {
			t.Errorf("%q: changed are %q, want %q", c.files, p.changed, want)
		}
	}
}

// A package whose tests are skipped is listed, and still linted.
func TestPlanNamesWhatItLeavesOut(t *testing.T) {
	p := planOf(tree(), []string{"slow/x.go", "a/x.go"}, regexp.MustCompile("slow"))
	if s := p.String(); !strings.Contains(s, ": m/slow") || strings.Contains(s, "m/a") {
		t.Errorf("the plan is %q", s)
	}
	commands := p.commands("TestLong")
	if lint := commands[0]; lint[len(lint)-1] != "-packages=m/a m/slow" {
		t.Errorf("lint is run by %q", lint)
	}
	if test := commands[1]; slices.Contains(test, "m/slow") || !slices.Contains(test, "m/a") {
		t.Errorf("tests are run by %q", test)
	}
}

// The lists of planted bugs are always checked. No test runs twice.
func TestCommandsOnce(t *testing.T) {
	const lint, planted = "github.com/elrun/elrun/internal/lint", "github.com/elrun/elrun/scripts/planted"
	for _, p := range []plan{{}, {tested: []string{lint}}, {tested: []string{lint, planted}}} {
		got := p.commands("TestLong")
		if test := got[len(got)-1]; !slices.Equal(test, []string{"scripts/gotest.sh", "-vet=off", "-skip=TestLong", planted}) || len(got) != 2 {
			t.Errorf("%q: got %q", p.tested, got)
		}
	}
}

// The folder of a package is relative to the root of the module, like the file names of git.
func TestPackages(t *testing.T) {
	t.Chdir("../..")
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	p := planOf(all, []string{"scripts/check/testdata/x", "internal/lint/lint.go"}, regexp.MustCompile("^$"))
	want := []string{"github.com/elrun/elrun/internal/lint", "github.com/elrun/elrun/scripts/check"}
	if !slices.Equal(p.tested, want) {
		t.Errorf("changed are %q, want %q", p.tested, want)
	}
}
