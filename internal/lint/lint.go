// Package lint checks elrun's own source: imports between packages, package variables,
// documentation, format, the size of files, functions and packages, the words in names, and the places of
// functions and methods. It runs as a test,
//
//	make lint        # or: go test ./internal/lint
//
// and the text of every problem names a remedy.
//
// The rules read syntax only, so that they see every file of the tree whatever its build
// constraints, and work on code that does not compile; only the rule "rooms" needs the types of a
// package. Checks that need the types of imported packages are left to go vet and staticcheck,
// which the test runs as well. The tables are in levels.go, where a new package gets its line, and
// vocabulary.go. The lists of old breaches (exemptions, debts, examplesDue) only get shorter: an entry that
// is no longer needed is a problem, too.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path of the module whose source is checked.
const Module = "github.com/elrun/elrun"

// File is one parsed Go file. The rules must not change it: all rules read the same File.
type File struct {
	// Name is the path of the file from the root of the module, with slashes.
	Name   string
	Source []byte
	Syntax *ast.File
	fset   *token.FileSet
}

// Package is a folder with Go files, including its tests.
type Package struct {
	// Dir is the path of the folder from the root of the module, with slashes. It
	// is "." at the root.
	Dir   string
	Files []*File
}

// Problem is one breach of a rule.
type Problem struct {
	Rule string
	File string
	Line int // 0 for a problem of the whole file
	Text string
}

// String returns the problem in the form of a compiler's message.
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Rule checks one package at a time.
type Rule struct {
	Name  string
	Check func(p *Package) []Problem
}

// Rules lists all rules. Exemptions refer to a rule by its name. A rule sees one package at a time:
// what depends on two packages is in the tables.
func Rules() []Rule {
	return []Rule{
		{"imports", checkImports},
		{"declarations", eachFile(checkDeclarations)},
		{"calls", eachFile(checkCalls)},
		{"documentation", checkDocs},
		{"surface", checkSurface},
		{"words", checkWords},
		{"example", checkExamples},
		{"size", eachFile(checkSize)},
		{"rooms", checkRooms},
		{"format", eachFile(checkFormat)},
	}
}

// Run applies a rule to packages and returns the problems in the order of the files. It leaves out
// the problems that exemptions() lists.
func Run(r Rule, packages []*Package) []Problem {
	return slices.DeleteFunc(r.problems(packages), exempt)
}

// problems applies the rule to packages without regard to exemptions.
func (r Rule) problems(packages []*Package) []Problem {
	var found []Problem
	for _, p := range packages {
		for _, problem := range r.Check(p) {
			problem.Rule = r.Name
			found = append(found, problem)
		}
	}
	return found
}

// Load parses all Go files below root, the folder of go.mod, in the order of their names. Like the
// go command it leaves out testdata, the modules of other projects, and names that start with a dot
// or an underscore. Nested modules of this project are included.
func Load(root string) ([]*Package, error) {
	var packages []*Package
	err := eachFolder(root, func(dir string) error {
		p, err := loadPackage(root, dir)
		if p != nil {
			packages = append(packages, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lint: load %s: %w", root, err)
	}
	return packages, nil
}

// Modules returns the folders below root with a go.mod of this project, as paths from root: "." and
// the folders of commands that have dependencies of their own.
func Modules(root string) ([]string, error) {
	var dirs []string
	err := eachFolder(root, func(dir string) error {
		rel, err := filepath.Rel(root, dir)
		if err == nil && isModule(dir) {
			dirs = append(dirs, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lint: modules of %s: %w", root, err)
	}
	return dirs, nil
}

// eachFolder visits root and all folders below it that belong to the project.
func eachFolder(root string, visit func(dir string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != root && (ignored(d.Name()) || foreign(root, name)) {
			return filepath.SkipDir
		}
		return visit(name)
	})
}

// ignored reports whether the go command skips a folder of this name.
func ignored(name string) bool {
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// isModule reports whether dir is the root of a module.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// foreign reports whether dir is the root of a module of another project: its name does not follow
// from its place in this module. Such a module is not checked here.
func foreign(root, dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	rel, relErr := filepath.Rel(root, dir)
	if err != nil || relErr != nil {
		return isModule(dir)
	}
	want := "module " + path.Join(Module, filepath.ToSlash(rel))
	return !slices.Contains(strings.Split(string(text), "\n"), want)
}

// loadPackage parses the Go files of one folder. It returns nil if the folder has no Go files.
func loadPackage(root, dir string) (*Package, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	p := &Package{Dir: filepath.ToSlash(rel)}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := Parse(path.Join(p.Dir, filepath.Base(name)), source)
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}

// Parse makes a File of source. name is its path from the root of the module.
func Parse(name string, source []byte) (*File, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{Name: name, Source: source, Syntax: syntax, fset: fset}, nil
}

// Test reports whether the file belongs to a test.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// External reports whether the file is part of an external test package. Such a package is built
// separately, so it may import packages of higher layers without a cycle.
func (f *File) External() bool {
	return f.Test() && strings.HasSuffix(f.Syntax.Name.Name, "_test")
}

// line returns the line of pos.
func (f *File) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// problem describes a breach at pos.
func (f *File) problem(pos token.Pos, format string, args ...any) Problem {
	return Problem{File: f.Name, Line: f.line(pos), Text: fmt.Sprintf(format, args...)}
}

// imported returns the path of the package that the file imports under a name, or "" if there is no
// such import. If an import has no alias, its name is the last element of the path that is not a
// version.
func (f *File) imported(name string) string {
	for _, spec := range f.Syntax.Imports {
		p := importPath(spec)
		local := path.Base(p)
		if len(local) > 1 && local[0] == 'v' && strings.Trim(local[1:], "0123456789") == "" {
			local = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == name {
			return p
		}
	}
	return ""
}

// importPath returns the path of an import without its quotes.
func importPath(spec *ast.ImportSpec) string { return strings.Trim(spec.Path.Value, "\"`") }

// eachFile turns a check of files into a check of packages.
func eachFile(check func(f *File) []Problem) func(p *Package) []Problem {
	return func(p *Package) []Problem {
		var all []Problem
		for _, f := range p.Files {
			all = append(all, check(f)...)
		}
		return all
	}
}

// matches reports whether name, a package or a file, is one of patterns. A pattern that ends in
// "/..." matches a folder and everything below it.
func matches(name string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		dir, tree := strings.CutSuffix(pattern, "/...")
		return name == dir || tree && strings.HasPrefix(name, dir+"/")
	})
}
