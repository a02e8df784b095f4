package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
)

// The limits of size. They are well above the usual sizes of files and functions in this module.
// Tests may be nested deeper, because they loop over ranks, sizes and operations.
const (
	maxFileLines   = 1000
	maxFuncLines   = 60
	maxNesting     = 3
	maxTestNesting = 5
	maxParams      = 6
)

// checkSize reports files and functions that are too long, too deep or too wide.
func checkSize(f *File) []Problem {
	var found []Problem
	if n := bytes.Count(f.Source, []byte("\n")); n > maxFileLines {
		found = append(found, Problem{File: f.Name, Text: overLimit("file", n, "lines", maxFileLines) + "split it by subject"})
	}
	for _, d := range f.Syntax.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			found = append(found, checkFuncSize(f, d)...)
		}
	}
	return found
}

// checkFuncSize reports a function over one of the limits.
func checkFuncSize(f *File, d *ast.FuncDecl) []Problem {
	var found []Problem
	limit := func(n int, what string, most int, instead string) {
		if n > most {
			found = append(found, f.problem(d.Pos(), "%s", overLimit(d.Name.Name, n, what, most)+instead))
		}
	}
	limit(f.line(d.End())-f.line(d.Pos())+1, "lines", maxFuncLines, "take a step of it out into a function with a name")
	limit(d.Type.Params.NumFields(), "parameters", maxParams, "gather those that belong together in a struct")
	deepest := maxNesting
	if f.Test() {
		deepest = maxTestNesting
	}
	if d.Body != nil {
		limit(nesting(d.Body, 0), "levels of nesting", deepest, "return early, or take the inner part out into a function")
	}
	return found
}

// overLimit returns the beginning of the text of a problem: name has n things of the kind what, and
// most is the limit.
func overLimit(name string, n int, what string, most int) string {
	return fmt.Sprintf("%s has %d %s, at most %d: ", name, n, what, most)
}

// nesting returns the depth of the deepest control statement below the node n; depth is the depth
// of n itself. An else-if is as deep as its if.
func nesting(n ast.Node, depth int) int {
	deepest := depth
	ast.Inspect(n, func(m ast.Node) bool {
		if m == nil || m == n {
			return true
		}
		inner := bodies(m)
		for _, b := range inner {
			deepest = max(deepest, nesting(b, depth+1))
		}
		return inner == nil
	})
	return deepest
}

// bodies returns the blocks that a control statement puts one level deeper, and nil
// for any other node.
func bodies(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.IfStmt:
		if other, ok := n.Else.(*ast.IfStmt); ok {
			return append(bodies(other), n.Body)
		}
		if n.Else != nil {
			return []ast.Node{n.Body, n.Else}
		}
		return []ast.Node{n.Body}
	case *ast.ForStmt:
		return []ast.Node{n.Body}
	case *ast.RangeStmt:
		return []ast.Node{n.Body}
	case *ast.SwitchStmt:
		return []ast.Node{n.Body}
	case *ast.TypeSwitchStmt:
		return []ast.Node{n.Body}
	case *ast.SelectStmt:
		return []ast.Node{n.Body}
	}
	return nil
}

// checkFormat reports a file that gofmt would change.
func checkFormat(f *File) []Problem {
	formatted, err := format.Source(f.Source)
	if err != nil || bytes.Equal(formatted, f.Source) {
		return nil // a file that cannot be formatted does not compile either
	}
	return []Problem{{File: f.Name, Text: "not formatted: run gofmt -w " + f.Name}}
}
