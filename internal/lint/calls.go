package lint

import "go/ast"

// checkCalls reports calls that a library or a test must not make.
func checkCalls(f *File) []Problem {
	var found []Problem
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if why := forbidden(f, f.callee(call)); why != "" {
			found = append(found, f.problem(call.Pos(), "no %s here: %s", f.callee(call), why))
		}
		return true
	})
	return found
}

// forbidden returns the advice against a call, or "" if the call is allowed.
func forbidden(f *File, callee string) string {
	switch callee {
	case "time.Sleep":
		// A sleep is too long on a fast machine and too short on a busy one.
		if f.Test() || matches(f.Name, "testing/...") {
			return "wait for the event itself by a channel, a context or a condition, or use a timer in a testing/synctest bubble"
		}
	// Standard output belongs to the program; a library's text would mix with it.
	case "fmt.Print", "fmt.Printf", "fmt.Println", "print", "println":
		if library(f) {
			return "return the text, or write it to an io.Writer that the caller gave; only package main prints"
		}
	case "log.Print", "log.Printf", "log.Println":
		if library(f) {
			return "report it to an event.Sink or a callback; only package main logs"
		}
	// These end the process or panic, so the caller cannot handle the failure.
	case "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln":
		if library(f) {
			return "return an error; only package main ends the process"
		}
	}
	return ""
}

// library reports whether other packages can import the code of the file.
func library(f *File) bool { return !f.Test() && f.Syntax.Name.Name != "main" }

// callee returns the function of a call as "import/path.Name", as the bare name if it is not
// qualified, or as "" for any other expression.
func (f *File) callee(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok && f.imported(x.Name) != "" {
			return f.imported(x.Name) + "." + fun.Sel.Name
		}
	}
	return ""
}
