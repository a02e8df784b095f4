package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// examplesDue lists, by package, the exported functions that have no example yet. Its keys are the
// packages in which each exported function needs an example. The lists only get shorter.
func examplesDue() map[string][]string {
	return map[string][]string{
		"collective":           {},
		"collective/transport": {},
		"elastic":              {},
		"elastic/parts":        {},
		"launch":               {},
		"loadbal":              {},
		"testing/cluster":      {},
		"trainer":              {},
		"trainer/local":        {},
		"trainer/nn":           {},
		"trainer/optim":        {},
	}
}

// checkExamples reports exported functions without an example, and functions in examplesDue that
// have an example. An example counts for all functions that it uses.
func checkExamples(p *Package) []Problem {
	due, ok := examplesDue()[p.Dir]
	if !ok {
		return nil
	}
	shown := shownFunctions(p)
	var found []Problem
	for _, f := range p.Files {
		if f.Test() {
			continue
		}
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() {
				continue
			}
			name := fn.Name.Name
			switch listed := slices.Contains(due, name); {
			case !shown[name] && !listed:
				found = append(found, f.problem(fn.Pos(),
					"no example shows %s: write Example%s, with an // Output: so that it runs, or call it in another one", name, name))
			case shown[name] && listed:
				found = append(found, f.problem(fn.Pos(), "%s has an example: remove it from examplesDue()", name))
			}
		}
	}
	return found
}

// shownFunctions returns the functions after which the examples of a package are named, and the
// functions that the examples use.
func shownFunctions(p *Package) map[string]bool {
	shown := make(map[string]bool)
	for _, f := range p.Files {
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && f.Test() && strings.HasPrefix(fn.Name.Name, "Example") {
				name, _, _ := strings.Cut(strings.TrimPrefix(fn.Name.Name, "Example"), "_")
				shown[name] = true
				addNamed(shown, f, fn.Body, Module+"/"+p.Dir)
			}
		}
	}
	return shown
}

// addNamed adds the names of an imported package that a piece of code uses.
func addNamed(to map[string]bool, f *File, code ast.Node, pkg string) {
	ast.Inspect(code, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && f.imported(x.Name) == pkg {
				to[s.Sel.Name] = true
			}
		}
		return true
	})
}
