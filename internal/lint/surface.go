package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// checkSurface reports exported declarations that use a type that other packages cannot name: a
// type of an internal package, or a type that the package does not export.
func checkSurface(p *Package) []Problem {
	// Other modules cannot import such a package, so it may use any type.
	if isInternal(p.Dir) || p.Files[0].Syntax.Name.Name == "main" {
		return nil
	}
	hidden := hiddenTypes(p)
	var found []Problem
	for _, f := range p.Files {
		if f.Test() {
			continue
		}
		s := surface{file: f, hidden: hidden}
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				s.function(d)
			case *ast.GenDecl:
				s.group(d)
			}
		}
		found = append(found, s.found...)
	}
	return found
}

// isInternal reports whether a package is in an internal folder, so that only packages near it may
// import it.
func isInternal(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "internal") }

// hiddenTypes returns the names of the types that a package does not export.
func hiddenTypes(p *Package) map[string]bool {
	hidden := make(map[string]bool)
	for _, f := range p.Files {
		for _, d := range f.Syntax.Decls {
			for _, s := range specsOf[*ast.TypeSpec](d) {
				hidden[s.Name.Name] = !s.Name.IsExported()
			}
		}
	}
	return hidden
}

// specsOf returns the parts of a declaration that are of kind S.
func specsOf[S ast.Spec](d ast.Decl) (all []S) {
	group, ok := d.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range group.Specs {
		if s, ok := spec.(S); ok {
			all = append(all, s)
		}
	}
	return all
}

// surface checks the exported declarations of one file.
type surface struct {
	file   *File
	hidden map[string]bool // types of the package by name
	found  []Problem
}

// function checks an exported function, or an exported method of an exported type.
func (s *surface) function(d *ast.FuncDecl) {
	if d.Recv != nil && len(d.Recv.List) > 0 && !ast.IsExported(receiverName(d.Recv.List[0].Type)) {
		return
	}
	if d.Name.IsExported() {
		s.named(d.Name.Name, d.Type)
	}
}

// group checks exported types, and exported constants and variables that are declared with a type.
func (s *surface) group(d *ast.GenDecl) {
	for _, spec := range specsOf[*ast.TypeSpec](d) {
		if !spec.Name.IsExported() {
			continue
		}
		if spec.TypeParams != nil {
			s.named(spec.Name.Name, spec.TypeParams)
		}
		s.named(spec.Name.Name, spec.Type)
	}
	for _, spec := range specsOf[*ast.ValueSpec](d) {
		if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
			s.named(spec.Names[0].Name, spec.Type)
		}
	}
}

// named reports the types in an expression that other packages cannot name. Fields and methods that
// are not exported are not part of the surface, and neither are embedded types whose names are not
// exported.
func (s *surface) named(owner string, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			s.members(owner, n.Fields)
			return false
		case *ast.InterfaceType:
			s.members(owner, n.Methods)
			return false
		case *ast.Field: // the names of parameters are no types
			s.named(owner, n.Type)
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && isInternal(s.file.imported(x.Name)) {
				s.report(owner, n, s.file.imported(x.Name)+"."+n.Sel.Name)
			}
			return false
		case *ast.Ident:
			if s.hidden[n.Name] {
				s.report(owner, n, n.Name)
			}
		}
		return true
	})
}

// members checks the fields of a struct, or the methods of an interface.
func (s *surface) members(owner string, list *ast.FieldList) {
	for _, m := range list.List {
		embedded := len(m.Names) == 0 && (receiverName(m.Type) == "" || ast.IsExported(receiverName(m.Type)))
		if embedded || slices.ContainsFunc(m.Names, (*ast.Ident).IsExported) {
			s.named(owner, m.Type)
		}
	}
}

// report adds the problem that a declaration names a type that other packages cannot name.
func (s *surface) report(owner string, n ast.Node, name string) {
	s.found = append(s.found, s.file.problem(n.Pos(),
		"%s names %s, which users cannot import: export the type where it belongs, or hide the declaration", owner, name))
}
