package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Documents name tests as `folder.TestName`, and each of these tests exists. SECURITY.md names a
// test for each promise, so at least 20.
func TestDocumentsNameTests(t *testing.T) {
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`")
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllSubmatch(text, -1)
		if filepath.Base(name) == "SECURITY.md" && len(found) < 20 {
			t.Errorf("%s names %d tests", name, len(found))
		}
		for _, n := range found {
			if dir, test := string(n[1]), string(n[2]); !declares(t, filepath.Join(top, dir), test) {
				t.Errorf("%s names %s.%s, and there is no such test", name, dir, test)
			}
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
