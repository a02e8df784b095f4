package lint_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/internal/lint"
)

// root is the folder of go.mod, relative to the folder of this package, in which the tests run.
const root = "../.."

// TestMain reads the flag of these tests.
func TestMain(m *testing.M) {
	flag.String("packages", "./...", "packages of this module to vet, for a quick check; other modules, and staticcheck of tests, are left out then")
	flag.Parse()
	os.Exit(m.Run())
}

// TestTree applies every rule to every Go file of the project.
func TestTree(t *testing.T) {
	packages, err := lint.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range lint.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, p := range lint.Run(rule, packages) {
				t.Error(p)
			}
		})
	}
	t.Run("exemptions", func(t *testing.T) {
		for _, e := range lint.UnusedExemptions(packages) {
			t.Errorf("an exemption is not needed any more, remove it from exemptions(): %s", e)
		}
	})
}

// TestVet runs go vet over each module.
func TestVet(t *testing.T) {
	overModules(t, "vet")
}

// TestStaticcheck runs staticcheck over each module. The tool and its dependencies are in tools.mod, so they are not in the
// module graph of programs that import elrun.
func TestStaticcheck(t *testing.T) {
	tools, err := filepath.Abs("tools.mod")
	if err != nil {
		t.Fatal(err)
	}
	tool := []string{"tool", "-modfile=" + tools, "staticcheck"}
	if out, err := goCommand(".", append(tool, "-version")...).CombinedOutput(); err != nil {
		unavailable(t, "cannot build staticcheck, which needs a module proxy the first time: %v\n%s", err, out)
	}
	if isQuick() {
		tool = append(tool, "-tests=false") // with tests, staticcheck would analyse all packages that the tests import
	}
	overModules(t, tool...)
}

// isQuick reports whether the flag names packages.
func isQuick() bool {
	given := flag.Lookup("packages")
	return given.Value.String() != given.DefValue
}

// overModules runs the go command with the arguments for all packages of each module. If the flag
// names packages, it runs the command only for these packages.
func overModules(t *testing.T, args ...string) {
	t.Helper()
	if isQuick() {
		if packages := strings.Fields(flag.Lookup("packages").Value.String()); len(packages) > 0 {
			check(t, goCommand(".", slices.Concat(args, packages)...))
		}
		return
	}
	for _, dir := range modules(t) {
		check(t, goCommand(dir, slices.Concat(args, []string{"./..."})...))
	}
}

// modules returns the folders of all modules of the project.
func modules(t *testing.T) []string {
	t.Helper()
	dirs, err := lint.Modules(root)
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// goCommand prepares the go command in a folder of the project.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(root, dir)
	return cmd
}

// check runs a command. If it fails, check reports each line of its output.
func check(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	for line := range strings.Lines(string(bytes.TrimSpace(out))) {
		t.Error(strings.TrimSuffix(line, "\n"))
	}
	t.Errorf("%v: %v", cmd.Args, err)
}

// unavailable skips a test for which a tool is missing. In CI, where all tools are installed, it fails the test instead.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
