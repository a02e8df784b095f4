package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"unicode"
)

// checkDeclarations reports init functions and package variables: global state is not visible in
// the parameters of a function, and tests that run in parallel would share it.
func checkDeclarations(f *File) []Problem {
	var found []Problem
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, f.problem(d.Pos(), "no init functions: do it in a constructor, or in main"))
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				found = append(found, checkVars(f, d)...)
			}
		}
	}
	return found
}

// checkVars reports the variables of a declaration, except for the allowed kinds: errors to compare
// with, embedded files, and the blank name, which asserts that a type has an interface.
func checkVars(f *File, d *ast.GenDecl) []Problem {
	var found []Problem
	for _, s := range d.Specs {
		spec := s.(*ast.ValueSpec)
		if embedded(d.Doc) || embedded(spec.Doc) {
			continue
		}
		for i, name := range spec.Names {
			if name.Name != "_" && !(i < len(spec.Values) && sentinel(f, name.Name, spec.Values[i])) {
				found = append(found, f.problem(name.Pos(),
					"no package variable %s: make it a constant, a function that returns it, or a field; only errors made by errors.New or fmt.Errorf or of that name in another package, //go:embed and \"var _ Interface\" may stand here", name.Name))
			}
		}
	}
	return found
}

// embedded reports whether a comment is a directive to fill the variable with a file.
func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// sentinel reports whether a variable is an error to compare with: its name is ErrX or errX, and
// its value comes from errors.New or fmt.Errorf, or is the variable of the same name in another
// package. Such a variable is never assigned again, so it is no shared state.
func sentinel(f *File, name string, value ast.Expr) bool {
	rest, ok := strings.CutPrefix(name, "Err")
	if !ok {
		rest, ok = strings.CutPrefix(name, "err")
	}
	if !ok || rest == "" || unicode.IsLower(rune(rest[0])) {
		return false
	}
	switch v := value.(type) {
	case *ast.CallExpr:
		return matches(f.callee(v), "errors.New", "fmt.Errorf")
	case *ast.SelectorExpr:
		return v.Sel.Name == name
	}
	return false
}
