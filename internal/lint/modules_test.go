package lint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// A program contains only the modules that its imports need. A program with its own training loop does not contain the modules of
// the trainer, and a training program does not contain the modules of tensors or plots.
func TestModulesOfPackages(t *testing.T) {
	const sys, hash, gonum = "golang.org/x/sys", "github.com/cespare/xxhash/v2", "gonum.org/v1/gonum"
	const blake, cpuid = "lukechampine.com/blake3", "github.com/klauspost/cpuid/v2" // blake3 imports cpuid
	for dir, want := range map[string][]string{
		"event":      nil,
		"collective": {sys},
		"elastic":    {sys, hash, blake, cpuid},
		"trainer":    {sys, hash, gonum, blake, cpuid},
		"trainer/nn": {sys, hash, gonum, blake, cpuid},
	} {
		got := modulesOf(t, dir)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s brings the modules %q, want %q", dir, got, want)
		}
	}
	for _, dir := range []string{"launch", "cmd/elrun", "examples/mnist"} {
		for _, m := range modulesOf(t, dir) {
			if strings.HasPrefix(m, "gorgonia.org/") || m == "gonum.org/v1/plot" || m == gonum && dir == "launch" {
				t.Errorf("%s brings %s, which it does not use", dir, m)
			}
			if strings.HasPrefix(m, "charm.land/") && dir != "cmd/elrun" {
				t.Errorf("%s brings %s, which only elrun top uses", dir, m)
			}
		}
	}
}

// modulesOf returns, sorted, the modules of all packages on which the package dir depends, except
// this module.
func modulesOf(t *testing.T, dir string) []string {
	t.Helper()
	out, err := goCommand(".", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./"+dir).Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v", dir, err)
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(m string) bool { return m == lint.Module })
}
