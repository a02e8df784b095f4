package main

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sources type-checks the packages of a module from source, so that the packages need not be
// compiled. It imports packages of other modules from the compiler's export data.
type sources struct {
	fset   *token.FileSet
	own    map[string]listed // packages of the module by import path
	parsed map[string]*ast.File
	others types.Importer
}

// universe has the packages of the module as the external tests of one package see them. It
// implements types.Importer, for packages of the module without the bodies of their functions.
type universe struct {
	*sources
	base  *universe // for packages that do not import tested; nil if there is no tested package
	known map[string]*types.Package
	// tested is the import path of the package whose external tests are checked. For these tests
	// the package also has the declarations in its internal tests.
	tested string
}

// checkTypes returns the errors of the compiler in the packages of this module, and in their tests.
func checkTypes(all []listed) error {
	s := &sources{fset: token.NewFileSet(), own: make(map[string]listed), parsed: make(map[string]*ast.File)}
	for _, p := range all {
		s.own[p.ImportPath] = p
	}
	exports, err := s.exports()
	if err != nil {
		return err
	}
	s.others = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	u := &universe{sources: s, known: make(map[string]*types.Package)}
	var failed []error
	for _, p := range all {
		failed = append(failed, u.check(p))
	}
	return errors.Join(failed...)
}

// exports returns the files with the export data of the packages that are imported from other modules, by import path.
func (s *sources) exports() (map[string]string, error) {
	others := []string{"unsafe"} // so that the list is not empty, for which the go command would list the package in the current directory
	for _, p := range s.own {
		others = append(others, slices.DeleteFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), func(path string) bool {
			_, own := s.own[path]
			return own
		})...)
	}
	slices.Sort(others)
	text, err := output(append([]string{"go", "list", "-deps", "-export", "-f={{.ImportPath}} {{.Export}}"}, slices.Compact(others)...)...)
	files := make(map[string]string)
	for line := range strings.Lines(text) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, err
}

// check type-checks a package with its internal tests, and then its external tests.
func (u *universe) check(p listed) error {
	pkg, err := u.typesOf(p.ImportPath, p, slices.Concat(p.GoFiles, p.TestGoFiles), true)
	if err != nil || len(p.XTestGoFiles) == 0 {
		return err
	}
	external := u
	if len(p.TestGoFiles) > 0 {
		external = &universe{u.sources, u, map[string]*types.Package{p.ImportPath: pkg}, p.ImportPath}
	}
	_, err = external.typesOf(p.ImportPath+"_test", p, p.XTestGoFiles, true)
	return err
}

// Import implements types.Importer.
func (u *universe) Import(path string) (*types.Package, error) {
	p, own := u.own[path]
	switch {
	case !own:
		return u.others.Import(path)
	case u.known[path] != nil:
		return u.known[path], nil
	case u.base != nil && !slices.Contains(p.Deps, u.tested):
		return u.base.Import(path)
	}
	pkg, err := u.typesOf(path, p, p.GoFiles, false)
	u.known[path] = pkg
	return pkg, err
}

// typesOf type-checks files in the folder of p as one package.
func (u *universe) typesOf(path string, p listed, names []string, bodies bool) (*types.Package, error) {
	var files []*ast.File
	for _, name := range names {
		name = filepath.Join(p.Dir, name)
		if u.parsed[name] == nil {
			f, err := parser.ParseFile(u.fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			u.parsed[name] = f
		}
		files = append(files, u.parsed[name])
	}
	var wrong []error
	cfg := types.Config{Importer: u, IgnoreFuncBodies: !bodies, Error: func(err error) { wrong = append(wrong, err) }}
	pkg, _ := cfg.Check(path, u.fset, files, nil) // cfg.Error gets the errors
	return pkg, errors.Join(wrong...)
}
