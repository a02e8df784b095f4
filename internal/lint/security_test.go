package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// SECURITY.md names a test for each promise; each must exist.
func TestSecurityNamesTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, n := range named {
		dir, name := string(n[1]), string(n[2])
		if !declares(t, filepath.Join(root, dir), name) {
			t.Errorf("SECURITY.md names %s.%s, and there is no such test", dir, name)
		}
	}
}

// declares reports whether a test file of a folder has a test.
func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`(?m)^func ` + test + `\(`)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if head.Match(b) {
			return true
		}
	}
	return false
}
