package lint_test

import (
	"fmt"
	"strings"
	"testing"
)

// members returns the source of a struct T with the given numbers of fields and methods.
func members(fields, methods int) string {
	var b strings.Builder
	b.WriteString("package ring\ntype T struct {\n")
	for i := range fields {
		fmt.Fprintf(&b, "\tf%d int\n", i)
	}
	b.WriteString("}\n")
	for i := range methods {
		fmt.Fprintf(&b, "func (t *T) m%d() {}\n", i)
	}
	return b.String()
}

func TestTypeSize(t *testing.T) {
	fields, methods := []string{"T has 21 fields, at most 20"}, []string{"T has 31 methods, at most 30"}
	checkSamples(t, "types", []sample{
		{"at the limits", "ring/a.go", members(20, 30), nil},
		{"fields", "ring/a.go", members(21, 0), fields},
		{"fields in one line", "ring/a.go", strings.Replace(members(19, 0), "f0 int", "a, b, c int", 1), fields},
		{"embedded", "ring/a.go", strings.Replace(members(20, 0), "f0 int", "U; *V", 1), fields},
		{"methods", "ring/a.go", members(0, 31), methods},
		{"both", "ring/a.go", members(21, 31), append(fields, methods...)},
		{"generic", "ring/a.go", strings.NewReplacer("type T", "type T[E any]", "*T", "*T[E]").Replace(members(1, 31)), methods},
		{"methods of a type that is no struct", "ring/a.go", strings.Replace(members(0, 31), "type T struct {\n}", "type T int", 1), methods},
		{"test", "ring/a_test.go", members(21, 31), nil},
		{"tool", "scripts/x/a.go", members(21, 31), nil},
		{"aid of tests", "testing/x/a.go", members(21, 31), nil},
	})
}

// Methods count in all files. Files for several systems declare the same type and methods, and count once.
func TestTypeSizeOverFiles(t *testing.T) {
	for _, c := range []struct {
		name, second string
		want         []string
	}{
		{"another system", members(20, 30), nil},
		{"another system with more", members(21, 0), []string{"T has 21 fields"}},
		{"more methods", "package ring\nfunc (t T) another() {}", []string{"T has 31 methods"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := packageOf(t, "ring/a_linux.go", members(20, 30))
			p.Files = append(p.Files, packageOf(t, "ring/a_other.go", c.second).Files...)
			compare(t, ruleNamed("types").Check(p), c.want)
		})
	}
}
