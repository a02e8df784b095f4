package lint

import (
	"go/ast"
	"go/token"
	"strings"
)

// checkDocs reports a package or an exported name without a comment.
func checkDocs(p *Package) []Problem {
	found := checkPackageDoc(p)
	for _, f := range p.Files {
		if f.Test() {
			continue
		}
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				found = append(found, checkFuncDoc(f, d)...)
			case *ast.GenDecl:
				found = append(found, checkGroupDoc(f, d)...)
			}
		}
	}
	return found
}

// checkPackageDoc reports a package without a comment above any of its package clauses. If a folder
// has only tests, the comment may be in one of them.
func checkPackageDoc(p *Package) []Problem {
	var code, tests []*File
	for _, f := range p.Files {
		if f.Test() {
			tests = append(tests, f)
		} else {
			code = append(code, f)
		}
	}
	// go doc ignores comments in test files, so a package with code needs the comment there.
	if len(code) == 0 {
		code = tests
	}
	for _, f := range code {
		if f.Syntax.Doc != nil {
			return nil
		}
	}
	f := code[0]
	return []Problem{f.problem(f.Syntax.Package,
		"package %s has no comment: say above the package clause what it is for and how to use it", f.Syntax.Name.Name)}
}

// checkFuncDoc reports a comment that begins with another name than that of its function, and an exported
// function, or an exported method of an exported type, without a comment. Methods of an unexported type are
// not in go doc, so they need none.
func checkFuncDoc(f *File, d *ast.FuncDecl) []Problem {
	name := d.Name.Name
	if d.Doc != nil {
		// A comment of directives only has no text.
		if words := strings.Fields(d.Doc.Text()); len(words) > 0 && words[0] != name {
			return []Problem{f.problem(d.Pos(), "the comment of %s begins with %q: begin it with the name of the function", name, words[0])}
		}
		return nil
	}
	if d.Recv != nil && len(d.Recv.List) > 0 {
		receiver := receiverName(d.Recv.List[0].Type)
		if !ast.IsExported(receiver) {
			return nil
		}
		name = receiver + "." + name
	}
	if !d.Name.IsExported() {
		return nil
	}
	return []Problem{f.problem(d.Pos(),
		"%s has no comment: say what it does, what its arguments must be, who owns them, and which errors it returns", name)}
}

// receiverName returns the name of a receiver's type without pointer and parameters.
func receiverName(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.ParenExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// checkGroupDoc reports exported types, constants and variables that have no comment
// of their own, while their group has none either.
func checkGroupDoc(f *File, d *ast.GenDecl) []Problem {
	if d.Doc != nil || d.Tok == token.IMPORT {
		return nil
	}
	var found []Problem
	for _, s := range d.Specs {
		for _, name := range undocumented(s) {
			found = append(found, f.problem(name.Pos(), "%s has no comment: say what it is, in which unit, and what its zero value means", name.Name))
		}
	}
	return found
}

// undocumented returns the exported names of a declaration without a comment. A comment at the end
// of the line counts.
func undocumented(s ast.Spec) []*ast.Ident {
	var names []*ast.Ident
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Doc == nil && s.Comment == nil {
			names = []*ast.Ident{s.Name}
		}
	case *ast.ValueSpec:
		if s.Doc == nil && s.Comment == nil {
			names = s.Names
		}
	}
	var exported []*ast.Ident
	for _, name := range names {
		if name.IsExported() {
			exported = append(exported, name)
		}
	}
	return exported
}
