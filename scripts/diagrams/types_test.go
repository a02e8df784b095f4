package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/elrun/elrun/"

// mostTypes is the number of types that a reader of the start may have to know.
const mostTypes = 60

// docs/architecture.md lists the types of the project that the stops of the start name in their signatures
// and bodies, by package. They are few.
func TestTypesOfStart(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]map[string]bool) // by folder
	for _, s := range startWalk().stops {
		for typ := range typesNamed(t, s) {
			if named[typ.pkg] == nil {
				named[typ.pkg] = make(map[string]bool)
			}
			named[typ.pkg][typ.name] = true
		}
	}
	count := 0
	for _, pkg := range slices.Sorted(maps.Keys(named)) {
		count += len(named[pkg])
		row := fmt.Sprintf("| `%s` | `%s` |\n", pkg, strings.Join(slices.Sorted(maps.Keys(named[pkg])), "`, `"))
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/architecture.md lacks the types of the start in %s: below its picture write\n%s", pkg, row)
		}
	}
	if total := fmt.Sprintf("The stops name %d types", count); !strings.Contains(string(text), total) {
		t.Errorf("docs/architecture.md lacks: %s", total)
	}
	if count > mostTypes {
		t.Errorf("the stops of the start name %d types, want at most %d", count, mostTypes)
	}
}

// typeName is a declared type: the folder of its package, and its name.
type typeName struct{ pkg, name string }

// typesNamed returns the types of the project that the function of a stop names.
func typesNamed(t *testing.T, s stop) map[typeName]bool {
	t.Helper()
	for _, f := range parseFolder(t, s.pkg) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == s.name && receiver(fn) == s.recv {
				n := names{own: declaredTypes(t, s.pkg), imported: make(map[string]map[string]typeName), local: make(map[string]bool), found: make(map[typeName]bool)}
				for name, dir := range imports(f) {
					n.imported[name] = declaredTypes(t, dir)
				}
				ast.Inspect(fn, n.declare)
				ast.Inspect(fn, n.use)
				return n.found
			}
		}
	}
	t.Fatalf("there is no %s", s.function())
	return nil
}

// names finds the types in a function. A local variable hides a type or a package of its name.
type names struct {
	own      map[string]typeName            // types of the package
	imported map[string]map[string]typeName // types of imported packages of the project
	local    map[string]bool
	found    map[typeName]bool
}

// declare records the local variables of a function.
func (n names) declare(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.Field: // parameters and results
		n.hide(node.Names)
	case *ast.ValueSpec:
		n.hide(node.Names)
	case *ast.AssignStmt:
		for _, left := range node.Lhs {
			if id, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
				n.hide([]*ast.Ident{id})
			}
		}
	case *ast.RangeStmt:
		for _, left := range []ast.Expr{node.Key, node.Value} {
			if id, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
				n.hide([]*ast.Ident{id})
			}
		}
	}
	return true
}

// hide records names of local variables.
func (n names) hide(ids []*ast.Ident) {
	for _, id := range ids {
		n.local[id.Name] = true
	}
}

// use records the types that a node names.
func (n names) use(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.SelectorExpr:
		if id, ok := node.X.(*ast.Ident); ok && !n.local[id.Name] {
			if typ, ok := n.imported[id.Name][node.Sel.Name]; ok {
				n.found[typ] = true
			}
		}
		ast.Inspect(node.X, n.use)
		return false
	case *ast.KeyValueExpr: // a key may be the name of a field
		if _, ok := node.Key.(*ast.Ident); !ok {
			ast.Inspect(node.Key, n.use)
		}
		ast.Inspect(node.Value, n.use)
		return false
	case *ast.Ident:
		if typ, ok := n.own[node.Name]; ok && !n.local[node.Name] {
			n.found[typ] = true
		}
	}
	return true
}

// declaredTypes returns the types of a package by name. A name for a type of another package of the project
// stands for that type.
func declaredTypes(t *testing.T, dir string) map[string]typeName {
	t.Helper()
	all := make(map[string]typeName)
	for _, f := range parseFolder(t, dir) {
		from := imports(f)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				all[spec.Name.Name] = typeName{dir, spec.Name.Name}
				if other, ok := spec.Type.(*ast.SelectorExpr); ok && spec.Assign.IsValid() {
					if id, ok := other.X.(*ast.Ident); ok && from[id.Name] != "" {
						all[spec.Name.Name] = typeName{from[id.Name], other.Sel.Name}
					}
				}
			}
		}
	}
	return all
}

// imports returns the folders of the packages of the project that a file imports, by the names of the packages.
func imports(f *ast.File) map[string]string {
	out := make(map[string]string)
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		dir, ok := strings.CutPrefix(path, module)
		if !ok {
			continue
		}
		name := filepath.Base(dir)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = dir
	}
	return out
}

// parseFolder parses the files of a package without its tests.
func parseFolder(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}
