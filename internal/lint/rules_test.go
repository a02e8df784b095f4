package lint_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// sample is a small file. want has, for each problem that a rule must find in the file, a part of the problem's text, in order;
// it is empty if the file is good.
type sample struct {
	name   string
	file   string
	source string
	want   []string
}

// checkSamples applies the named rule to each sample separately.
func checkSamples(t *testing.T, name string, samples []sample) {
	t.Helper()
	rule := ruleNamed(name)
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			compare(t, rule.Check(packageOf(t, s.file, s.source)), s.want)
		})
	}
}

func ruleNamed(name string) lint.Rule {
	rules := lint.Rules()
	return rules[slices.IndexFunc(rules, func(r lint.Rule) bool { return r.Name == name })]
}

// packageOf makes a package of one file.
func packageOf(t *testing.T, file, source string) *lint.Package {
	t.Helper()
	f, err := lint.Parse(file, []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return &lint.Package{Dir: path.Dir(file), Files: []*lint.File{f}}
}

func compare(t *testing.T, got []lint.Problem, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d problems, want %d: %v", len(got), len(want), got)
	}
	for i, p := range got {
		if !strings.Contains(p.Text, want[i]) {
			t.Errorf("problem %d is %q, want %q in it", i, p.Text, want[i])
		}
	}
}

// A function has an example if an example is named after the function or calls it.
func TestExampleRule(t *testing.T) {
	const shown = "package collective_test\nimport \"" + lint.Module + "/collective\"\n"
	for _, s := range []struct {
		name, dir, code, test string
		want                  []string
	}{
		{"none", "collective", "func F() {}", "func TestF() { collective.F() }", []string{"no example shows F: write ExampleF"}},
		{"of that name", "collective", "func F() {}", "func ExampleF() {}", nil},
		{"of that name and a suffix", "collective", "func F() {}", "func ExampleF_twice() {}", nil},
		{"of another one", "collective", "func F() {}\nfunc G() {}", "func ExampleG() { func() { collective.F() }() }", nil},
		{"of another package", "collective", "func F() {}", "func ExampleG() { ring.F() }", []string{"no example shows F"}},
		{"methods and what is hidden", "collective", "type T int\nfunc (T) F() {}\nfunc f() {}", "", nil},
		{"another package", "ring", "func F() {}", "", nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			p := packageOf(t, s.dir+"/a.go", "package collective\n"+s.code)
			p.Files = append(p.Files, packageOf(t, s.dir+"/a_test.go", shown+s.test).Files...)
			compare(t, ruleNamed("example").Check(p), s.want)
		})
	}
}

// importing returns the source of a package that imports paths.
func importing(pkg string, paths ...string) string {
	source := "package " + pkg + "\n"
	for _, p := range paths {
		source += fmt.Sprintf("import %q\n", p)
	}
	return source
}

func TestLayers(t *testing.T) {
	in := func(dir string) string { return lint.Module + "/" + dir }
	up := []string{"arrows point downward only"}
	checkSamples(t, "imports", []sample{
		{"down", "collective/a.go", importing("collective", in("ring"), in("internal/kernel")), nil},
		{"up", "ring/a.go", importing("ring", in("collective")), up},
		{"far up", "elastic/a.go", importing("elastic", in("launch")), up},
		{"sideways", "transport/ticket/a.go", importing("ticket", in("transport/mailbox")), up},
		{"room above", "elastic/a.go", importing("elastic", in("transport/mem")), up},
		{"room beside", "trainer/a.go", importing("trainer", in("transport/p2p")), up},
		{"room below", "transport/p2p/a.go", importing("p2p", in("elastic")), nil},
		{"own parts below", "elastic/a.go", importing("elastic", in("elastic/member"), in("elastic/internal/transfer")), nil},
		{"between transports", "transport/mem/a.go", importing("mem", in("transport/p2p")), up},
		{"common part of transports", "transport/mem/a.go", importing("mem", in("transport/mailbox")), nil},
		{"common part uses a transport", "transport/mailbox/a.go", importing("mailbox", in("transport/mem")), up},
		{"own sub-package", "launch/a.go", importing("launch", in("launch/internal/run")), nil},
		{"parent", "launch/internal/run/a.go", importing("run", in("launch")), up},
		{"trainer above its optimisers", "trainer/a.go", importing("trainer", in("trainer/optim")), nil},
		{"trainer below its models", "trainer/nn/a.go", importing("nn", in("trainer")), nil},
		{"models below the trainer", "trainer/a.go", importing("trainer", in("trainer/nn")), up},
		{"aids of tests", "testing/cluster/a.go", importing("cluster", in("testing/transporttest"), in("launch")), nil},
		{"aid of tests in code", "trainer/a.go", importing("trainer", in("testing/cluster")), up},
		{"aid of tests in a test inside", "trainer/a_test.go", importing("trainer", in("testing/cluster")), []string{"package trainer_test"}},
		{"aid of tests in a test outside", "trainer/a_test.go", importing("trainer_test", in("testing/cluster")), nil},
		{"unknown importer", "newcomer/a.go", importing("newcomer"), []string{"has no layer"}},
		{"unknown target", "launch/a.go", importing("launch", in("newcomer")), up},
		{"file in testing", "testing/a.go", importing("testing"), []string{"no Go file in testing/ itself"}},
	})
}

func TestConfinements(t *testing.T) {
	const host, tensor = "github.com/libp2p/go-libp2p/core/host", "gorgonia.org/tensor"
	checkSamples(t, "imports", []sample{
		{"cgo", "internal/kernel/a.go", importing("kernel", "C"), []string{"CGO_ENABLED=0"}},
		{"unsafe below", "internal/kernel/a.go", importing("kernel", "unsafe"), nil},
		{"unsafe elsewhere", "ring/a_test.go", importing("ring", "unsafe"), []string{"only in internal/kernel"}},
		{"libp2p transport", "transport/p2p/a.go", importing("p2p", host), nil},
		{"libp2p wiring", "launch/a.go", importing("launch", host), nil},
		{"libp2p elsewhere", "elastic/a.go", importing("elastic", host), []string{"only in transport/p2p, transport/ticket, launch"}},
		{"addresses elsewhere", "cmd/elrun/a.go", importing("main", "github.com/multiformats/go-multiaddr"), []string{"elastic.Network"}},
		{"tensor adapter", "trainer/tensors/a.go", importing("tensors", tensor), nil},
		{"test of the adapter", "trainer/tensors/a_test.go", importing("tensors_test", tensor), nil},
		{"tensor elsewhere", "trainer/model.go", importing("trainer", tensor), []string{"package trainer/tensors"}},
		{"flags in a command", "cmd/elrun/a.go", importing("main", "github.com/alecthomas/kong"), nil},
		{"flags in a library", "launch/a.go", importing("launch", "github.com/alecthomas/kong"), []string{"options struct"}},
		{"figures", "scripts/figures/balance/a.go", importing("main", "gonum.org/v1/plot/vg"), nil},
		{"figures elsewhere", "scripts/scale/a.go", importing("main", "gonum.org/v1/plot"), []string{"module of its own"}},
		{"similar name", "elastic/a.go", importing("elastic", "github.com/libp2p-other/host"), nil},
	})
}

func TestBans(t *testing.T) {
	pure := []string{"net", "net/netip", "os", "os/exec", "time", "log", "log/slog", "math/rand", "math/rand/v2"}
	for _, dir := range []string{"elastic/member", "transport/internal/wire", "loadbal", "ring"} {
		for _, p := range pure {
			checkSamples(t, "imports", []sample{
				{dir + " " + p, dir + "/a.go", importing("x", p), []string{"this package is pure"}},
				{dir + " test " + p, dir + "/a_test.go", importing("x", p), nil},
			})
		}
	}
	checkSamples(t, "imports", []sample{
		{"clock above", "elastic/a.go", importing("elastic", "time", "math", "log/slog"), nil},
		{"network in elastic", "elastic/a.go", importing("elastic", "net"), []string{"elastic.Network"}},
		{"trainer in launch", "launch/a.go", importing("launch", lint.Module+"/trainer"), []string{"launch starts any program"}},
		{"math in pure", "loadbal/a.go", importing("loadbal", "math", "slices"), nil},
	})
}

func TestDeclarations(t *testing.T) {
	head := "package x\nimport (\"errors\"; \"fmt\"; _ \"embed\")\n"
	checkSamples(t, "declarations", []sample{
		{"init", "ring/a.go", "package x\nfunc init() {}", []string{"no init functions"}},
		{"init in a test", "ring/a_test.go", "package x\nfunc init() {}", []string{"no init functions"}},
		{"method called init", "ring/a.go", "package x\ntype T int\nfunc (T) init() {}", nil},
		{"variable", "ring/a.go", "package x\nvar count int", []string{"no package variable count"}},
		{"two variables", "ring/a.go", "package x\nvar a, b = 1, 2", []string{"variable a", "variable b"}},
		{"table", "ring/a_test.go", "package x\nvar cases = []int{1}", []string{"variable cases"}},
		{"sentinels", "ring/a.go", head + "var (\nErrGone = errors.New(\"gone\")\nerrOdd = fmt.Errorf(\"odd: %w\", ErrGone)\n)", nil},
		{"sentinel of another package", "ring/a.go", head + "var ErrGone = fs.ErrGone", nil},
		{"error of another name", "ring/a.go", head + "var ErrGone = fs.ErrLost", []string{"variable ErrGone"}},
		{"error that can change", "ring/a.go", "package x\nvar ErrLast error", []string{"variable ErrLast"}},
		{"error by another function", "ring/a.go", "package x\nvar errOwn = fail()", []string{"variable errOwn"}},
		{"name that only looks like an error", "ring/a.go", head + "var errand = errors.New(\"go\")", []string{"variable errand"}},
		{"assertion", "ring/a.go", head + "var _ error = (*T)(nil)", nil},
		{"embedded file", "ring/a.go", head + "//go:embed page.html\nvar page string", nil},
		{"embedded in a group", "ring/a.go", head + "var (\n//go:embed page.html\npage string\n)", nil},
		{"local variable", "ring/a.go", "package x\nfunc f() { var n int; _ = n }", nil},
		{"constant", "ring/a.go", "package x\nconst n = 1", nil},
	})
}

func TestCalls(t *testing.T) {
	calling := func(pkg, imported, call string) string {
		return fmt.Sprintf("package %s\nimport %s\nfunc f() { %s }", pkg, imported, call)
	}
	sleep := calling("x", `"time"`, "time.Sleep(1)")
	checkSamples(t, "calls", []sample{
		{"sleep in a test", "ring/a_test.go", sleep, []string{"synctest"}},
		{"sleep by another name", "ring/a_test.go", calling("x", `clock "time"`, "clock.Sleep(1)"), []string{"no time.Sleep"}},
		{"sleep in an aid of tests", "testing/cluster/a.go", sleep, []string{"no time.Sleep"}},
		{"sleep end to end", "testing/e2e/a_test.go", sleep, []string{"a condition"}},
		{"sleep in code", "examples/mnist/a.go", sleep, nil},
		{"other sleep", "ring/a_test.go", calling("x", `"time"`, "bed.Sleep(1)"), nil},
		{"print", "launch/a.go", calling("launch", `"fmt"`, "fmt.Println(1)"), []string{"io.Writer"}},
		{"builtin print", "launch/a.go", "package launch\nfunc f() { println(1) }", []string{"io.Writer"}},
		{"print in main", "cmd/elrun/a.go", calling("main", `"fmt"`, "fmt.Println(1)"), nil},
		{"print in an example", "launch/a_test.go", calling("launch", `"fmt"`, "fmt.Println(1)"), nil},
		{"print to a writer", "launch/a.go", calling("launch", `"fmt"`, "fmt.Fprintln(w, 1)"), nil},
		{"log", "launch/a.go", calling("launch", `"log"`, "log.Print(1)"), []string{"event.Sink"}},
		{"exit", "launch/a.go", calling("launch", `"os"`, "os.Exit(1)"), []string{"return an error"}},
		{"fatal", "launch/a.go", calling("launch", `"log"`, "log.Fatalf(\"\")"), []string{"return an error"}},
		{"exit in main", "cmd/elrun/a.go", calling("main", `"os"`, "os.Exit(1)"), nil},
		{"version in the path", "launch/a.go", calling("launch", `"example.com/os/v2"`, "os.Exit(1)"), nil},
	})
}

func TestDocumentation(t *testing.T) {
	head := "// Package x is for tests.\npackage x\n"
	checkSamples(t, "documentation", []sample{
		{"package", "ring/a.go", "package ring", []string{"package ring has no comment"}},
		{"package of tests", "testing/e2e/a_test.go", "package e2e_test", []string{"has no comment"}},
		{"function", "ring/a.go", head + "func F() {}", []string{"F has no comment"}},
		{"documented function", "ring/a.go", head + "// F does nothing.\nfunc F() {}", nil},
		{"own function", "ring/a.go", head + "func f() {}", nil},
		{"function that was renamed", "ring/a.go", head + "// g does nothing.\nfunc f() {}", []string{"the comment of f begins with \"g\""}},
		{"function with a directive", "ring/a.go", head + "//go:noinline\nfunc f() {}", nil},
		{"method", "ring/a.go", head + "// T is a type.\ntype T[E any] int\nfunc (t *T[E]) M() {}", []string{"T.M has no comment"}},
		{"method of two parameters", "ring/a.go", head + "func (t *T[A, B]) M() {}", []string{"T.M has no comment"}},
		{"method of an own type", "ring/a.go", head + "func (t t) M() {}", nil},
		{"type", "ring/a.go", head + "type T int", []string{"T has no comment"}},
		{"types in a group", "ring/a.go", head + "type (\n// A is one.\nA int\nB int\n)", []string{"B has no comment"}},
		{"constants", "ring/a.go", head + "const (\nA = 1\nb = 2\nC = 3 // the third\n)", []string{"A has no comment"}},
		{"documented group", "ring/a.go", head + "// The numbers.\nconst (\nA = 1\nB = 2\n)", nil},
		{"variables", "ring/a.go", head + "var ErrA, ErrB error", []string{"ErrA", "ErrB"}},
		{"test", "ring/a_test.go", head + "func TestF() {}\ntype T int", nil},
	})
}

// Every type in an exported declaration can be imported.
func TestSurface(t *testing.T) {
	head := "package ring\nimport \"" + lint.Module + "/internal/kernel\"\ntype hidden int\n"
	hidden, kernel := []string{"names hidden"}, []string{"internal/kernel.X"}
	checkSamples(t, "surface", []sample{
		{"result", "ring/a.go", head + "func F() *hidden", hidden},
		{"parameter", "ring/a.go", head + "func F(m map[string][]kernel.X)", kernel},
		{"own function", "ring/a.go", head + "func f(kernel.X) hidden", nil},
		{"method", "ring/a.go", head + "func (t *T) M(hidden int, x func(...hidden))", hidden},
		{"method of an own type", "ring/a.go", head + "func (t hidden) M(kernel.X)", nil},
		{"type", "ring/a.go", head + "type T []hidden", hidden},
		{"alias", "ring/a.go", head + "type T = kernel.X", kernel},
		{"own type", "ring/a.go", head + "type t kernel.X", nil},
		{"constraint", "ring/a.go", head + "type T[E kernel.X] int", kernel},
		{"function's constraint", "ring/a.go", head + "func F[E kernel.X]()", kernel},
		{"fields", "ring/a.go", head + "type T struct { A, b hidden; c kernel.X }", hidden},
		{"embedded", "ring/a.go", head + "type T struct { hidden; kernel.X }", kernel},
		{"methods of an interface", "ring/a.go", head + "type T interface { M() hidden; m() kernel.X }", hidden},
		{"variable", "ring/a.go", head + "var V, w hidden", hidden},
		{"own variable", "ring/a.go", head + "var v hidden", nil},
		{"in an internal package", "internal/x/a.go", head + "func F() hidden", nil},
		{"in a command", "cmd/x/a.go", strings.Replace(head, "ring", "main", 1) + "func F() hidden", nil},
		{"in a test", "ring/a_test.go", head + "func F() hidden", nil},
	})
}

// TestPackageCommentAnywhere checks that a package needs its comment in one file only, and that a comment in a test file does not
// count.
func TestPackageCommentAnywhere(t *testing.T) {
	rule := ruleNamed("documentation")
	for _, c := range []struct {
		files map[string]string
		want  []string
	}{
		{map[string]string{"ring/a.go": "package ring", "ring/doc.go": "// Package ring is round.\npackage ring"}, nil},
		{map[string]string{"ring/a.go": "package ring", "ring/a_test.go": "// Package ring is round.\npackage ring"}, []string{"package ring has no comment"}},
	} {
		p := &lint.Package{Dir: "ring"}
		for name, source := range c.files {
			p.Files = append(p.Files, packageOf(t, name, source).Files...)
		}
		compare(t, rule.Check(p), c.want)
	}
}

func TestSize(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\n", n) }
	body := func(s string) string { return "package x\nfunc f() {" + s + "}" }
	checkSamples(t, "size", []sample{
		{"file", "ring/a.go", "package x" + lines(1000), nil},
		{"long file", "ring/a.go", "package x" + lines(1001), []string{"file has 1001 lines, at most 1000"}},
		{"function", "ring/a.go", body(lines(59)), nil},
		{"long function", "ring/a.go", body(lines(60)), []string{"f has 61 lines, at most 60"}},
		{"parameters", "ring/a.go", "package x\nfunc f(a, b, c int, d, e, g string) {}", nil},
		{"many parameters", "ring/a.go", "package x\nfunc f(a, b, c int, d, e, g string, h bool) {}", []string{"f has 7 parameters"}},
		{"declaration only", "ring/a.go", "package x\nfunc f(a []int)", nil},
		{"deep", "ring/a.go", body("for { if x { switch { case y: } } }"), nil},
		{"too deep", "ring/a.go", body("for { if x { switch { case y: for range z {} } } }"), []string{"f has 4 levels of nesting"}},
		{"else is deeper", "ring/a.go", body("if a { } else { if b { if c { if d {} } } }"), []string{"4 levels"}},
		{"else if is not", "ring/a.go", body("if a { } else if b { } else if c { } else if d { if e { } }"), nil},
		{"function inside", "ring/a.go", body("for { select { case <-c: go func() { for { if x {} } }() } }"), []string{"4 levels"}},
		{"tests may loop over ranks, sizes and operations", "ring/a_test.go", body("for { for { for { for { if x {} } } } }"), nil},
		{"too deep for a test", "ring/a_test.go", body("for { for { for { for { if x { if y {} } } } } }"), []string{"at most 5"}},
		{"type switch", "ring/a.go", body("switch x.(type) { case int: for { if x { if y {} } } }"), []string{"4 levels"}},
	})
}

func TestFormat(t *testing.T) {
	checkSamples(t, "format", []sample{
		{"formatted", "ring/a.go", "package x\n\nvar a = 1\n", nil},
		{"spaces", "ring/a.go", "package x\n\nvar a  =  1\n", []string{"gofmt -w ring/a.go"}},
	})
}
