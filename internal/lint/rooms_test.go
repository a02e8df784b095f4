package lint_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// filesOf makes a package of files by name.
func filesOf(t *testing.T, dir string, files map[string]string) *lint.Package {
	t.Helper()
	p := &lint.Package{Dir: dir}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p.Files = append(p.Files, packageOf(t, dir+"/"+name, "package x\n"+files[name]).Files...)
	}
	return p
}

// many returns files, or declarations of types in one file.
func many(n int, what string) map[string]string {
	files := map[string]string{}
	var all strings.Builder
	for i := range n {
		files[fmt.Sprintf("f%d.go", i)] = ""
		fmt.Fprintf(&all, "type t%d int\n", i)
	}
	if what == "types" {
		return map[string]string{"a.go": all.String()}
	}
	return files
}

// A package is small, its methods and helpers stand in their places, and receivers have the initial of their type.
func TestRooms(t *testing.T) {
	for _, c := range []struct {
		name  string
		dir   string
		files map[string]string
		want  []string
	}{
		{"40 files", "x", many(40, "files"), nil},
		{"41 files", "x", many(41, "files"), []string{"has 41, at most 40, files"}},
		{"tests are no files", "x", map[string]string{"a_test.go": "", "b.go": ""}, nil},
		{"60 types", "x", many(60, "types"), nil},
		{"61 types", "x", many(61, "types"), []string{"has 61, at most 60, types"}},
		{"methods in two files", "x", map[string]string{"a.go": "type T int\nfunc (t T) F() {}", "b.go": "func (t T) G() {}"}, nil},
		{"methods in three files", "x", map[string]string{"a.go": "type T int\nfunc (t T) F() {}", "b.go": "func (t *T) G() {}", "c.go": "func (t T) H() {}"},
			[]string{"has 1, at most 0, types whose methods stand"}},
		{"methods for systems", "x", map[string]string{"a.go": "type T int\nfunc (t T) F() {}", "b_linux.go": "func (t T) G() {}", "b_other.go": "func (t T) G() {}"}, nil},
		{"a helper beside its caller", "x", map[string]string{"a.go": "func F() { g() }\nfunc g() {}"}, nil},
		{"a helper used once elsewhere", "x", map[string]string{"a.go": "func F() { g() }", "b.go": "func g() {}"}, []string{"has 1, at most 0, functions that only one other file uses"}},
		{"a helper used twice", "x", map[string]string{"a.go": "func F() { g(); g() }", "b.go": "func g() {}"}, nil},
		{"an exported function", "x", map[string]string{"a.go": "func F() { G() }", "b.go": "func G() {}"}, nil},
		{"a foreign receiver", "x", map[string]string{"a.go": "type T int\nfunc (s *T) F() {}"}, []string{"has 1, at most 0, receivers"}},
		{"a receiver of a generic type", "x", map[string]string{"a.go": "type T[E any] []E\nfunc (t T[E]) F() {}\nfunc (_ T[E]) G() {}\nfunc (T[E]) H() {}"}, nil},
		{"an assignment that the if checks", "x", map[string]string{"a.go": "func F() {\n\tvar err error\n\tif err = G(); err != nil {\n\t}\n\tif b := G(); true { _ = b }\n}\nfunc G() error { return nil }"}, nil},
		{"a hidden assignment", "x", map[string]string{"a.go": "func F(a, b int) {\n\tif a = 1; b > 0 {\n\t}\n}"}, []string{"has 1, at most 0, assignments"}},
		{"an aid of tests", "testing/x", many(41, "files"), nil},
		{"a debt that is smaller by now", "dtype", many(1, "files"), []string{"has 0 and debts() allows 1 receivers"}},
	} {
		t.Run(c.name, func(t *testing.T) { compare(t, ruleNamed("rooms").Check(filesOf(t, c.dir, c.files)), c.want) })
	}
}
