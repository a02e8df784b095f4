package lint_test

import (
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
		p.Files = append(p.Files, packageOf(t, dir+"/"+name, source(files[name])).Files...)
	}
	return p
}

// source adds a package clause to a file that has none.
func source(text string) string {
	if strings.Contains(text, "package ") {
		return text
	}
	return "package ring\n" + text
}

// References that run back up even in the best order of the files are found.
func TestArrows(t *testing.T) {
	const back = "references between files run back up"
	for _, c := range []struct {
		name  string
		dir   string
		files map[string]string
		want  []string
	}{
		{"one way", "ring", map[string]string{
			"a.go": "func f() { g(); g() }", "b.go": "func g() { h() }", "c.go": "func h() {}"}, nil},
		{"one way against the names", "ring", map[string]string{
			"a.go": "func f() {}", "b.go": "func g() { f() }", "c.go": "func h() { f(); g() }"}, nil},
		{"within files", "ring", map[string]string{"a.go": "func f() { f() }", "b.go": "func g() { g() }"}, nil},
		{"half", "ring", map[string]string{"a.go": "func f() { g() }", "b.go": "func g() { f() }"},
			[]string{"1 of 2 " + back + ", at most 25 %: move declarations to the files that use them; most run from b.go to a.go"}},
		{"a quarter", "ring", map[string]string{"a.go": "func f() { g(); g(); g() }", "b.go": "func g() { f() }"}, nil},
		{"a circle", "ring", map[string]string{
			"a.go": "func f() { g() }", "b.go": "func g() { h() }", "c.go": "func h() { f() }"}, []string{"1 of 3 " + back}},
		{"methods are where they are declared", "ring", map[string]string{
			"a.go": "type T int\nfunc f(t T) { t.g() }", "b.go": "func (t T) g() {}"}, []string{"1 of 2 " + back}},
		{"methods back and forth", "ring", map[string]string{
			"a.go": "type T int\nfunc (t T) f() { t.g(); t.g() }", "b.go": "func (t T) g() { t.f() }"}, []string{"2 of 4 " + back}},
		{"methods of generic types", "ring", map[string]string{
			"a.go": "type T[E any] int\nfunc (t T[E]) f() { t.g(); t.g() }", "b.go": "func (t T[E]) g() { t.f() }"}, []string{"2 of 4 " + back}},
		{"types, constants and variables", "ring", map[string]string{
			"a.go": "type T int\nconst c = d\n", "b.go": "const d = 1\nvar v T = c"}, []string{"1 of 3 " + back}},
		{"fields and local names", "ring", map[string]string{
			"a.go": "type T struct{ f int }\nfunc g(h int) { _ = h }", "b.go": "func h(t T) { g(t.f) }"}, nil},
		{"imported packages are not read", "ring", map[string]string{
			"a.go": "import \"x/y\"\nfunc f() { y.Z(g()).W(); undefined.V() }", "b.go": "func g() { f() }"}, []string{"1 of 2 " + back}},
		{"tests", "ring", map[string]string{"a.go": "func f() { g() }", "b_test.go": "func g() { f() }"}, nil},
		{"another system", "ring", map[string]string{"a.go": "func f() { g() }", "b_darwin.go": "func g() { f() }"}, nil},
		{"build constraint", "ring", map[string]string{"a.go": "func f() { g() }", "b.go": "//go:build darwin\n\npackage ring\nfunc g() { f() }"}, nil},
		{"tool", "scripts/x", map[string]string{"a.go": "func f() { g() }", "b.go": "func g() { f() }"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { compare(t, ruleNamed("arrows").Check(filesOf(t, c.dir, c.files)), c.want) })
	}
}

// Moving single files improves an order that the first heuristic leaves: the number of references that run back up is the least
// of all orders.
func TestArrowsLeast(t *testing.T) {
	files := map[string]string{
		"a.go": "func a() {" + strings.Repeat("b();", 5) + "d() }",
		"b.go": "func b() {" + strings.Repeat("c();", 3) + "}",
		"c.go": "func c() {" + strings.Repeat("a();", 4) + "d() }",
		"d.go": "func d() {" + strings.Repeat("b();", 2) + "a(); c() }",
	}
	p := filesOf(t, "ring", files)
	least := lint.LeastBack(p)
	if got, all := lint.Back(p); got != least || all != 18 {
		t.Errorf("%d of %d references run back up, in the best order %d of 18", got, all, least)
	}
}
