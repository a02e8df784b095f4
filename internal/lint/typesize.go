package lint

import (
	"go/ast"
	"maps"
	"slices"
)

// The limits of a type. A larger type usually has several responsibilities. The remedy is a new
// type for the fields that change together and the methods that use them.
const (
	maxFields  = 20
	maxMethods = 30
)

// checkTypes reports types of the product that have too many fields or methods.
func checkTypes(p *Package) (found []Problem) {
	if !isProduct(p.Dir) {
		return nil
	}
	types := typesOf(p)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t := types[name]
		limit := func(n int, what string, most int) {
			if n > most {
				found = append(found, t.file.problem(t.name.Pos(), "%s", overLimit(name, n, what, most)+
					"make a type of the fields that change together and the methods that use them"))
			}
		}
		limit(t.fields, "fields", maxFields)
		limit(len(t.methods), "methods", maxMethods)
	}
	return found
}

// isProduct reports whether programs that use elrun may contain a package: it is no test, example or tool.
func isProduct(dir string) bool { return !matches(dir, "testing/...", "scripts/...", "examples/...") }

// typeDecl is a type of a package.
type typeDecl struct {
	file    *File
	name    *ast.Ident
	fields  int             // of a struct; the largest number, if the type is declared for several operating systems
	methods map[string]bool // names, so that a method declared for several operating systems counts once
}

// typesOf returns the types that the files of a package declare, except for its tests.
func typesOf(p *Package) map[string]*typeDecl {
	types := make(map[string]*typeDecl)
	files := slices.DeleteFunc(slices.Clone(p.Files), (*File).Test)
	for _, f := range files {
		for _, d := range f.Syntax.Decls {
			for _, spec := range specsOf[*ast.TypeSpec](d) {
				addType(types, f, spec)
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Syntax.Decls {
			addMethod(types, d)
		}
	}
	return types
}

// addType adds a declaration of a type.
func addType(types map[string]*typeDecl, f *File, spec *ast.TypeSpec) {
	t, ok := types[spec.Name.Name]
	if !ok {
		t = &typeDecl{file: f, name: spec.Name, methods: make(map[string]bool)}
		types[spec.Name.Name] = t
	}
	t.fields = max(t.fields, fieldsOf(spec.Type))
}

// addMethod adds a declaration to its type if it is a method.
func addMethod(types map[string]*typeDecl, d ast.Decl) {
	m, ok := d.(*ast.FuncDecl)
	if !ok || m.Recv == nil {
		return
	}
	if t, ok := types[receiverName(m.Recv.List[0].Type)]; ok {
		t.methods[m.Name.Name] = true
	}
}

// fieldsOf returns the number of fields of a struct type, 0 for another type. An embedded field counts as one.
func fieldsOf(t ast.Expr) (n int) {
	if s, ok := t.(*ast.StructType); ok {
		for _, field := range s.Fields.List {
			n += max(1, len(field.Names))
		}
	}
	return n
}
