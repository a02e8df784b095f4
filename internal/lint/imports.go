package lint

import (
	"go/ast"
	"strings"
)

// checkImports checks every import against the tables of levels.go.
func checkImports(p *Package) []Problem {
	if problem, ok := checkFolder(p); !ok {
		return []Problem{problem}
	}
	var found []Problem
	for _, f := range p.Files {
		for _, spec := range f.Syntax.Imports {
			found = append(found, checkLayer(p, f, spec)...)
			found = append(found, checkConfinement(p, f, spec)...)
			found = append(found, checkBan(p, f, spec)...)
		}
	}
	return found
}

// checkFolder reports a package in the folder testing/ itself, or a package without a layer.
func checkFolder(p *Package) (Problem, bool) {
	first := p.Files[0]
	if p.Dir == "testing" {
		return first.problem(first.Syntax.Package,
			"no Go file in testing/ itself, it would hide the standard package of that name: move it to a sub-package"), false
	}
	if _, ok := placeOf(p.Dir); !ok {
		return first.problem(first.Syntax.Package,
			"package %s has no layer: give it one in layers(), in internal/lint/levels.go, and in docs/architecture.md", p.Dir), false
	}
	return Problem{}, true
}

// checkLayer reports an import that does not point downward. External tests may import anything,
// because nothing can depend on them.
func checkLayer(p *Package, f *File, spec *ast.ImportSpec) []Problem {
	target, ok := strings.CutPrefix(importPath(spec), Module+"/")
	if !ok || f.External() {
		return nil
	}
	from, _ := placeOf(p.Dir)
	to, ok := placeOf(target)
	// A package may import its own parts, which are in folders below it.
	sameTree := from.pattern == to.pattern && matches(target, p.Dir+"/...")
	if ok && (to.height < from.height || sameTree || isTesting(p.Dir) && isTesting(target)) {
		return nil
	}
	instead := "declare a small interface here and let the other package implement it"
	if f.Test() {
		instead = "make this test external, package " + f.Syntax.Name.Name + "_test"
	}
	return []Problem{f.problem(spec.Pos(), "%s (%s) must not import %s (%s), arrows point downward only: %s",
		p.Dir, from.level, target, to.level, instead)}
}

// isTesting reports whether a package is for tests only. Such packages may import each other.
func isTesting(dir string) bool { return matches(dir, "testing/...") }

// checkConfinement reports an import that only some packages may have, such as unsafe, in any other
// package. Tests are no exception.
func checkConfinement(p *Package, f *File, spec *ast.ImportSpec) []Problem {
	for _, c := range confinements() {
		if matches(importPath(spec), c.Import...) && !matches(p.Dir, c.Allowed...) && !matches(f.Name, c.Allowed...) {
			where := "nowhere"
			if len(c.Allowed) > 0 {
				where = "only in " + strings.Join(c.Allowed, ", ")
			}
			return []Problem{f.problem(spec.Pos(), "%s may be imported %s: %s", importPath(spec), where, c.Instead)}
		}
	}
	return nil
}

// checkBan reports an import that is forbidden in this package but allowed elsewhere. Tests are
// exempt.
func checkBan(p *Package, f *File, spec *ast.ImportSpec) []Problem {
	if f.Test() {
		return nil
	}
	for _, b := range bans() {
		if matches(p.Dir, b.Packages...) && matches(importPath(spec), b.Imports...) {
			return []Problem{f.problem(spec.Pos(), "%s must not import %s: %s", p.Dir, importPath(spec), b.Instead)}
		}
	}
	return nil
}
