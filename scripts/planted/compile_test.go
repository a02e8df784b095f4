package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/elrun/elrun"

// TestCompiles type-checks each Go file with its bug. If a bug does not compile, for example
// because a variable becomes unused, no test can run to detect it.
func TestCompiles(t *testing.T) {
	root := filepath.Join("..", "..")
	c := newChecker(t, root)
	for _, b := range readList(t, root) {
		if path.Ext(b.file) != ".go" {
			continue // assembly has no types
		}
		if err := c.check(root, b); err != nil {
			t.Errorf("%q does not compile: %v", b.name, err)
		}
	}
}

// listed is a package in the output of go list.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
}

// list runs go list for packages.
func list(t *testing.T, root string, args ...string) map[string]listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=Dir,ImportPath,Export,GoFiles"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]listed)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// checker type-checks packages of this module from source, and imports packages of other modules
// from the compiler's export data.
type checker struct {
	fset   *token.FileSet
	own    map[string]listed // packages by import path
	known  map[string]*types.Package
	beside map[string][]*ast.File // other files of a file's package, by file
	others types.Importer
}

func newChecker(t *testing.T, root string) *checker {
	t.Helper()
	own := list(t, root, "-deps", "./...")
	others := slices.Collect(maps.Keys(own))
	maps.DeleteFunc(own, func(path string, _ listed) bool { return !strings.HasPrefix(path, module) })
	others = slices.DeleteFunc(others, func(path string) bool { _, is := own[path]; return is })
	compiled := list(t, root, append([]string{"-export"}, others...)...)
	c := &checker{fset: token.NewFileSet(), own: own, known: make(map[string]*types.Package), beside: make(map[string][]*ast.File)}
	c.others = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path].Export) })
	return c
}

// Import implements types.Importer. It does not check the bodies of functions.
func (c *checker) Import(path string) (*types.Package, error) {
	own, is := c.own[path]
	if !is {
		return c.others.Import(path)
	}
	if p := c.known[path]; p != nil {
		return p, nil
	}
	files, err := c.parse(own, "")
	if err != nil {
		return nil, err
	}
	cfg := types.Config{Importer: c, IgnoreFuncBodies: true}
	c.known[path], err = cfg.Check(path, c.fset, files, nil)
	return c.known[path], err
}

// parse parses the files of a package except file but, without the bodies of functions.
func (c *checker) parse(p listed, but string) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		if name == but {
			continue
		}
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
				fn.Body.List = nil
			}
		}
		files = append(files, f)
	}
	return files, nil
}

// check type-checks the file of a bug with the bug in it.
func (c *checker) check(root string, b bug) error {
	dir, name := path.Split(b.file)
	importPath := path.Join(module, dir)
	p := c.own[importPath]
	if !slices.Contains(p.GoFiles, name) {
		return fmt.Errorf("%s is built into no package here", b.file)
	}
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.file)))
	if err != nil {
		return err
	}
	planted, err := b.apply(string(source))
	if err != nil {
		return err
	}
	with, err := parser.ParseFile(c.fset, b.name, planted, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if c.beside[b.file] == nil {
		if c.beside[b.file], err = c.parse(p, name); err != nil {
			return err
		}
	}
	var wrong []error
	cfg := types.Config{Importer: c, Error: func(err error) {
		// Without bodies the other files have unused imports and missing returns.
		if at := (types.Error{}); errors.As(err, &at) && c.fset.Position(at.Pos).Filename == b.name {
			wrong = append(wrong, err)
		}
	}}
	_, _ = cfg.Check(importPath, c.fset, append(slices.Clone(c.beside[b.file]), with), nil) // cfg.Error gets the errors
	return errors.Join(wrong...)
}
