package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"path"
	"slices"
)

// maxBack is the maximum share, in percent, of the references between the files of a package that
// run back up: from a file to an earlier file in the best order of the files. With few such
// references a reader can read the files in this order.
const maxBack = 25

// checkArrows reports a package of the product in which too many references between files run back up, in the best order of its
// files.
func checkArrows(p *Package) []Problem {
	if !isProduct(p.Dir) {
		return nil
	}
	g := fileGraphOf(p)
	order := g.order()
	back, all := g.back(order), g.all()
	if back*100 <= all*maxBack {
		return nil
	}
	return []Problem{{File: p.Dir, Text: fmt.Sprintf("%d of %d references between files run back up, at most %d %%: move declarations to the files that use them; most run from %s",
		back, all, maxBack, g.worst(order))}}
}

// fileGraph has the references between the files of a package.
type fileGraph struct {
	names []string
	refs  [][]int // refs[a][b] is the number of uses in file a of declarations in file b
}

// fileGraphOf returns the references between the files of a package on Linux, except for its tests.
// It counts uses of types, functions, constants and variables at package level, and of methods.
// Imported packages are not read, so a use of a method counts only if the type of the receiver
// follows from the source of the package itself.
func fileGraphOf(p *Package) fileGraph {
	fset := token.NewFileSet()
	var syntax []*ast.File
	var g fileGraph
	at := make(map[string]int)
	for _, f := range p.Files {
		if f.Test() || !onLinux(f) {
			continue
		}
		if parsed, err := parser.ParseFile(fset, f.Name, f.Source, parser.SkipObjectResolution); err == nil {
			at[f.Name] = len(g.names)
			g.names = append(g.names, path.Base(f.Name))
			syntax = append(syntax, parsed)
		}
	}
	for range g.names {
		g.refs = append(g.refs, make([]int, len(g.names)))
	}
	// The type checker resolves each name to its declaration, which a search by text could not do
	// for methods.
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Error: func(error) {}, Importer: emptyPackages{}}
	pkg, _ := config.Check(p.Dir, fset, syntax, info) // the type checker reports that imported packages are empty
	for use, object := range info.Uses {
		if object.Pkg() == pkg && (object.Parent() == pkg.Scope() || isMethod(object)) {
			g.refs[at[fset.Position(use.Pos()).Filename]][at[fset.Position(object.Pos()).Filename]]++
		}
	}
	for i := range g.refs {
		g.refs[i][i] = 0
	}
	return g
}

// onLinux reports whether a file is part of its package on Linux with amd64.
func onLinux(f *File) bool {
	context := build.Default
	context.GOOS, context.GOARCH, context.CgoEnabled = "linux", "amd64", false
	context.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.Source)), nil }
	is, err := context.MatchFile("", path.Base(f.Name))
	return is && err == nil
}

// isMethod reports whether an object is a method.
func isMethod(object types.Object) bool {
	f, ok := object.(*types.Func)
	return ok && f.Signature().Recv() != nil
}

// emptyPackages imports every package as an empty one.
type emptyPackages struct{}

// Import returns a package without declarations.
func (emptyPackages) Import(name string) (*types.Package, error) {
	if name == "unsafe" {
		return types.Unsafe, nil
	}
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}

// all returns the number of references. It is the base of the percentage in checkArrows.
func (f fileGraph) all() (n int) {
	for _, row := range f.refs {
		for _, k := range row {
			n += k
		}
	}
	return n
}

// back returns the number of references that run back up: from a file to an earlier file in the
// order.
func (f fileGraph) back(order []int) (n int) {
	for i, file := range order {
		for _, above := range order[:i] {
			n += f.refs[file][above]
		}
	}
	return n
}

// worst returns the pair of files with most references that run back up.
func (f fileGraph) worst(order []int) string {
	most, from, to := 0, 0, 0
	for i, file := range order {
		for _, above := range order[:i] {
			if n := f.refs[file][above]; n > most {
				most, from, to = n, file, above
			}
		}
	}
	return fmt.Sprintf("%s to %s", f.names[from], f.names[to])
}

// order returns the files from the top down, so that few references run back up. It is the
// heuristic of Eades, Lin and Smyth (A fast and effective heuristic for the feedback arc set
// problem, 1993), which finds an order without such references if there is one. Then order moves
// single files while a move lowers the number of references that run back up.
func (f fileGraph) order() []int {
	var left []int
	for i := range f.names {
		left = append(left, i)
	}
	var top, bottom []int
	for len(left) > 0 {
		at, sink := f.next(left)
		if sink {
			bottom = append(bottom, left[at])
		} else {
			top = append(top, left[at])
		}
		left = slices.Delete(left, at, at+1)
	}
	slices.Reverse(bottom)
	order := append(top, bottom...)
	for f.improve(order) {
	}
	return order
}

// next returns the index of the file that is placed next. A file that uses no other file goes to
// the bottom (sink is true). Otherwise the file with the greatest difference of uses and users goes
// to the top; a file without users comes before all others.
func (f fileGraph) next(left []int) (at int, sink bool) {
	best := 0
	for i, file := range left {
		uses, used := 0, 0
		for _, other := range left {
			uses += f.refs[file][other]
			used += f.refs[other][file]
		}
		if uses == 0 {
			return i, true
		}
		if used == 0 {
			uses = 1 << 30
		}
		if i == 0 || uses-used > best {
			at, best = i, uses-used
		}
	}
	return at, false
}

// improve moves the first file that has a better place in the order to the best place for it. It
// reports whether it moved a file. Each move lowers the number of references that run back up, so
// repeated calls end.
func (f fileGraph) improve(order []int) bool {
	for i, file := range order {
		gain, best, where := 0, 0, i
		for j := i + 1; j < len(order); j++ {
			gain += f.refs[order[j]][file] - f.refs[file][order[j]]
			if gain > best {
				best, where = gain, j
			}
		}
		gain = 0
		for j := i - 1; j >= 0; j-- {
			gain += f.refs[file][order[j]] - f.refs[order[j]][file]
			if gain > best {
				best, where = gain, j
			}
		}
		if best > 0 {
			copy(order[min(i, where):], slices.Insert(slices.Delete(slices.Clone(order), i, i+1), where, file)[min(i, where):])
			return true
		}
	}
	return false
}
