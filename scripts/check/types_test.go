package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkTypes finds code that does not compile in packages, in their tests, and in packages and
// tests that import a changed package. For the external tests of a package, it and the packages
// that import it have the declarations of its internal tests.
func TestTypes(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"all is well", "a/none.txt", "", ""},
		{"a package", "a/a.go", "package a\n\ntype T int\n\nfunc F() int { return 1.5 }\n", "a/a.go:5"},
		{"an importer", "a/a.go", "package a\n\ntype T int\n\nfunc F(int) int { return 1 }\n", "b/b.go:5"},
		{"a body", "b/b.go", "package b\n\nimport \"m/a\"\n\nfunc G() (t a.T) { unused := t; return }\n", "b/b.go:5"},
		{"a test", "a/a_test.go", "package a\n\nvar Export string = F()\n", "a/a_test.go:3"},
		{"an external test", "a/x_test.go", "package a_test\n\nimport \"m/a\"\n\nvar _ = a.Missing\n", "a/x_test.go:5"},
		{"an unused import", "a/x_test.go", "package a_test\n\nimport \"m/a\"\n", "a/x_test.go:3"},
		{"syntax", "b/b.go", "package b\n\nfunc {\n", "b/b.go:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for name, text := range map[string]string{
				"go.mod":      "module m\n\ngo 1.26\n",
				"a/a.go":      "package a\n\ntype T int\n\nfunc F() int { return len(`x`) }\n",
				"a/a_test.go": "package a\n\nvar Export T\n",
				"a/x_test.go": "package a_test\n\nimport (\n\t\"testing\"\n\n\t\"m/a\"\n\t\"m/b\"\n)\n\nfunc Test(*testing.T) { _ = a.Export == b.G() }\n",
				"b/b.go":      "package b\n\nimport \"m/a\"\n\nfunc G() a.T { return a.T(a.F()) }\n",
				c.file:        c.text,
			} {
				if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			all, err := packages()
			if err == nil {
				err = checkTypes(all)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), filepath.FromSlash(c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
