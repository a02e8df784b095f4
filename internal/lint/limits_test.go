package lint

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// constants has the whole-number constants of a package by name, and the file that declares each.
type constants struct {
	exprs map[string]ast.Expr
	files map[string]string
}

// readConstants parses the files of a folder except its tests.
func readConstants(t *testing.T, dir string) constants {
	t.Helper()
	out := constants{map[string]ast.Expr{}, map[string]string{}}
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range specsOf[*ast.ValueSpec](d) {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						out.exprs[name.Name], out.files[name.Name] = spec.Values[i], filepath.Base(path)
					}
				}
			}
		}
	}
	return out
}

// value evaluates a constant expression. It returns nil if the expression is not a whole number.
func (c constants) value(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return c.value(e.X)
	case *ast.Ident:
		if x, ok := c.exprs[e.Name]; ok {
			return c.value(x)
		}
	case *ast.SelectorExpr: // a constant of the standard library
		values := map[string]int64{
			"Millisecond": int64(time.Millisecond), "Second": int64(time.Second), "Minute": int64(time.Minute), "Hour": int64(time.Hour),
			"Size": sha256.Size, "SignatureSize": ed25519.SignatureSize,
		}
		if v, ok := values[e.Sel.Name]; ok {
			return constant.MakeInt64(v)
		}
	case *ast.BinaryExpr:
		x, y := c.value(e.X), c.value(e.Y)
		if x == nil || y == nil {
			return nil
		}
		if e.Op == token.SHL {
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(n))
		}
		return constant.BinaryOp(x, e.Op, y)
	}
	return nil
}

// shownValue parses a value in the table: a number, a number with a unit, or a duration.
func shownValue(text string) (int64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d), nil
	}
	var n int64
	var unit string
	if fields, err := fmt.Sscan(text+" -", &n, &unit); fields != 2 {
		return 0, err
	}
	shift, ok := map[string]int{"-": 0, "Ki": 10, "KiB": 10, "Mi": 20, "MiB": 20}[unit]
	if !ok {
		return 0, fmt.Errorf("unit %q", unit)
	}
	return n << shift, nil
}

// docs/strangers.md has a table of the resources that strangers and newcomers may use at most. The
// values in the table are equal to the constants in the code. The table has every constant of the
// files that the test names, as all constants there are such limits.
func TestLimitsInDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/strangers.md")
	if err != nil {
		t.Fatal(err)
	}
	packages, listed := map[string]constants{}, map[string]bool{}
	rows := regexp.MustCompile(`(?m)^\| [a-z, ]+ \| \x60([a-z0-9/]+)\.([A-Za-z]+)\x60 \| ([^|]+) \|`).FindAllStringSubmatch(string(b), -1)
	for _, row := range rows {
		dir, name, shown := row[1], row[2], row[3]
		if _, ok := packages[dir]; !ok {
			packages[dir] = readConstants(t, dir)
		}
		listed[dir+"."+name] = true
		e, ok := packages[dir].exprs[name]
		if !ok {
			t.Errorf("%s has no constant %s", dir, name)
			continue
		}
		want, err := shownValue(shown)
		if got := packages[dir].value(e); err != nil || got == nil || constant.Compare(got, token.NEQ, constant.MakeInt64(want)) {
			t.Errorf("%s.%s is %v, the table has %q: %v", dir, name, got, shown, err)
		}
	}
	for dir, files := range map[string][]string{
		"transport/p2p":  {"halfopen.go", "throttle.go", "strangers.go", "admission.go"},
		"transport/mesh": {"requests.go"},
	} {
		for _, file := range files {
			found := false
			for name, in := range packages[dir].files {
				found = found || in == file
				if in == file && !listed[dir+"."+name] {
					t.Errorf("the table lacks %s.%s of %s", dir, name, file)
				}
			}
			if !found {
				t.Errorf("%s has no constants in %s", dir, file)
			}
		}
	}
	if len(rows) < 30 {
		t.Errorf("%d rows", len(rows))
	}
}
