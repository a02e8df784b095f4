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
	"strings"
)

// The limits of a package. A larger one has several responsibilities, and its reader loses the way.
const (
	maxFiles = 40
	maxTypes = 60
)

// order has what a reader of a package stumbles over. A file is a part: a type, its life and its methods.
// So methods stand in the file of their type, a helper that is used once beside its caller, and a receiver
// has one name, the initial of its type.
type order struct {
	files, types int
	strewn       int // types whose methods stand in three files or more
	exiled       int // functions that one function of another file uses, and nothing else
	receivers    int // with a letter that is not the initial of their type
	hidden       int // assignments in the header of an if that checks something else
}

// checkRooms reports a package of the product over a limit. A package that debts lists may have as many as
// it says, and no fewer: the list only gets shorter.
func checkRooms(p *Package) (found []Problem) {
	if !isProduct(p.Dir) {
		return nil
	}
	got, most := roomsOf(p), debts()[p.Dir]
	most.files, most.types = max(most.files, maxFiles), max(most.types, maxTypes)
	for _, c := range []struct {
		n, most, floor int
		what           string
	}{
		{got.files, most.files, maxFiles, "files: split it by responsibility"},
		{got.types, most.types, maxTypes, "types: split it by responsibility"},
		{got.strewn, most.strewn, 0, "types whose methods stand in more than two files: move the methods to the file of their type"},
		{got.exiled, most.exiled, 0, "functions that only one other file uses, once: move each beside its caller"},
		{got.receivers, most.receivers, 0, "receivers that are not the initial of their type: rename them"},
		{got.hidden, most.hidden, 0, "assignments in the header of an if that checks something else: put each in a line of its own"},
	} {
		switch {
		case c.n > c.most:
			found = append(found, Problem{File: p.Dir, Text: fmt.Sprintf("the package has %d, at most %d, %s", c.n, c.most, c.what)})
		case c.n < c.most && c.most > c.floor:
			found = append(found, Problem{File: p.Dir, Text: fmt.Sprintf("the package has %d and debts() allows %d %s; lower the number there", c.n, c.most, strings.SplitN(c.what, ":", 2)[0])})
		}
	}
	return found
}

// isProduct reports whether programs that use elrun may contain a package: it is no test, example or tool.
func isProduct(dir string) bool { return !matches(dir, "testing/...", "scripts/...", "examples/...") }

// roomsOf counts. It does not count tests.
func roomsOf(p *Package) (o order) {
	declared := map[string]bool{}
	methods := map[string]map[string]bool{} // files by type
	for _, f := range p.Files {
		if f.Test() {
			continue
		}
		o.files++
		for _, d := range f.Syntax.Decls {
			for _, s := range specsOf[*ast.TypeSpec](d) {
				declared[s.Name.Name] = true
			}
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil {
				continue
			}
			t := receiverName(m.Recv.List[0].Type)
			if methods[t] == nil {
				methods[t] = map[string]bool{}
			}
			methods[t][part(f.Name)] = true
			if isForeign(m.Recv.List[0], t) {
				o.receivers++
			}
		}
		o.hidden += hiddenAssignments(f.Syntax)
	}
	o.types = len(declared)
	for _, files := range methods {
		if len(files) > 2 {
			o.strewn++
		}
	}
	o.exiled = exiledFunctions(p)
	return o
}

// part returns the name of a file without the operating system: such files are one part.
func part(name string) string {
	name = strings.TrimSuffix(path.Base(name), ".go")
	for _, system := range []string{"_linux", "_darwin", "_windows", "_unix", "_other", "_amd64", "_arm64"} {
		name = strings.TrimSuffix(name, system)
	}
	return name
}

// isForeign reports whether a receiver has a name that does not begin with the initial of its type.
func isForeign(f *ast.Field, typ string) bool {
	if len(f.Names) == 0 || f.Names[0].Name == "_" || typ == "" {
		return false
	}
	return !strings.EqualFold(f.Names[0].Name[:1], typ[:1])
}

// hiddenAssignments returns the number of assignments in the header of an if whose condition has none of
// the assigned variables.
func hiddenAssignments(f *ast.File) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		s, ok := node.(*ast.IfStmt)
		if !ok {
			return true
		}
		a, ok := s.Init.(*ast.AssignStmt)
		if !ok || a.Tok == token.DEFINE {
			return true
		}
		checked := false
		for _, left := range a.Lhs {
			checked = checked || mentions(s.Cond, left)
		}
		if !checked {
			n++
		}
		return true
	})
	return n
}

// mentions reports whether a condition has the expression e.
func mentions(cond, e ast.Expr) (found bool) {
	text := types.ExprString(e)
	ast.Inspect(cond, func(node ast.Node) bool {
		if x, ok := node.(ast.Expr); ok && types.ExprString(x) == text {
			found = true
		}
		return !found
	})
	return found
}

// exiledFunctions returns the number of functions that are not exported and whose only use is in another
// file.
func exiledFunctions(p *Package) (n int) {
	fset := token.NewFileSet()
	var syntax []*ast.File
	for _, f := range p.Files {
		if f.Test() || !onLinux(f) {
			continue
		}
		if parsed, err := parser.ParseFile(fset, f.Name, f.Source, parser.SkipObjectResolution); err == nil {
			syntax = append(syntax, parsed)
		}
	}
	// The type checker resolves each name to its declaration. Imported packages are not read.
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Error: func(error) {}, Importer: emptyPackages{}}
	pkg, _ := config.Check(p.Dir, fset, syntax, info) // the type checker reports that imported packages are empty
	users := map[types.Object][]string{}
	for use, object := range info.Uses {
		f, ok := object.(*types.Func)
		if ok && f.Pkg() == pkg && !f.Exported() && f.Signature().Recv() == nil {
			users[object] = append(users[object], fset.Position(use.Pos()).Filename)
		}
	}
	for object, files := range users {
		if len(files) == 1 && part(files[0]) != part(fset.Position(object.Pos()).Filename) {
			n++
		}
	}
	return n
}

// onLinux reports whether a file is part of its package on Linux with amd64.
func onLinux(f *File) bool {
	context := build.Default
	context.GOOS, context.GOARCH, context.CgoEnabled = "linux", "amd64", false
	context.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.Source)), nil }
	is, err := context.MatchFile("", path.Base(f.Name))
	return is && err == nil
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

// debts lists the packages over a limit of checkRooms.
func debts() map[string]order {
	return map[string]order{
		"cmd/elrun":                 {strewn: 1, exiled: 8, receivers: 11, hidden: 2},
		"cmd/elrun/bench":           {exiled: 4, hidden: 4},
		"collective":                {exiled: 4},
		"dtype":                     {receivers: 1},
		"elastic":                   {types: 114, exiled: 7},
		"elastic/internal/transfer": {exiled: 8},
		"elastic/member":            {types: 75, exiled: 1},
		"internal/kernel":           {exiled: 5},
		"internal/lint":             {exiled: 14},
		"internal/netpoll":          {exiled: 1},
		"internal/shm":              {exiled: 5},
		"launch/internal/agent":     {exiled: 2, receivers: 1},
		"launch/internal/ctl":       {exiled: 1},
		"launch/internal/doctor":    {exiled: 8},
		"launch/internal/hosts":     {exiled: 1, receivers: 3},
		"launch/internal/inpeer":    {strewn: 1, exiled: 8},
		"launch/internal/job":       {hidden: 2},
		"launch/internal/proc":      {exiled: 3},
		"launch/internal/run":       {strewn: 2, exiled: 8, hidden: 3},
		"launch/internal/say":       {strewn: 1, exiled: 1},
		"launch/internal/wire":      {receivers: 1},
		"launch/program":            {strewn: 2, receivers: 2},
		"launch/spec":               {hidden: 1},
		"ring":                      {exiled: 5},
		"trainer":                   {types: 86, exiled: 11},
		"trainer/checkpoint":        {exiled: 4},
		"trainer/local":             {exiled: 2},
		"trainer/npy":               {exiled: 2},
		"transport/internal/direct": {exiled: 9},
		"transport/internal/punch":  {exiled: 1},
		"transport/mem":             {hidden: 1},
		"transport/mesh":            {exiled: 16},
		"transport/p2p":             {types: 65, strewn: 2, exiled: 18, receivers: 6, hidden: 3},
	}
}
