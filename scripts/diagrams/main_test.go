package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Each stop names an existing function, and no walk has more than eight stops in a process.
func TestStopsExist(t *testing.T) {
	for _, w := range walks() {
		in := make(map[string]int)
		for _, s := range w.stops {
			if in[s.in]++; in[s.in] == 9 {
				t.Errorf("%s has more than 8 stops in a process", w.name)
			}
			if ok, err := exists(s); err != nil {
				t.Errorf("%s: %v", w.name, err)
			} else if !ok {
				t.Errorf("%s: there is no %s; name the function that does this now", w.name, s.function())
			}
		}
	}
}

// docs/architecture.md lists the functions of each walk.
func TestListsInDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	document := strings.Join(strings.Fields(string(text)), " ")
	for _, w := range walks() {
		if !strings.Contains(document, w.list()) {
			t.Errorf("docs/architecture.md lacks the walk %s: below its picture write\n%s", w.name, w.list())
		}
	}
}

// exists reports whether the package of a stop declares its function.
func exists(s stop) (bool, error) {
	files, err := filepath.Glob(filepath.Join(root, s.pkg, "*.go"))
	if err != nil {
		return false, err
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == s.name && receiver(fn) == s.recv {
				return true, nil
			}
		}
	}
	return false, nil
}

// receiver returns the type of a method's receiver; "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	t := fn.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return "?"
}

// The drawings in docs/architecture are up to date, and are valid XML.
func TestDrawingsAreUpToDate(t *testing.T) {
	for _, w := range walks() {
		want := w.draw()
		got, err := os.ReadFile(filepath.Join(root, "docs/architecture", w.name+".svg"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s.svg is not up to date (%v): run go run ./scripts/diagrams docs/architecture", w.name, err)
		}
		d := xml.NewDecoder(bytes.NewReader(want))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s.svg: %v", w.name, err)
		}
	}
}

// A wrong command line prints the usage.
func TestUsage(t *testing.T) {
	if err := run(nil); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("got %v", err)
	}
}
