package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gotest.sh fails if a test fails, or in CI if a test is skipped, and prints the reason.
func TestGotest(t *testing.T) {
	script, err := filepath.Abs("../gotest.sh")
	if err != nil {
		t.Fatal(err)
	}
	const pass, skip, fail = `t.Log("chatter")`, `t.Skip("no compiler")`, `t.Error("want 1")`
	for _, c := range []struct {
		name, body, ci string
		ok             bool
		want           string
	}{
		{"pass", pass, "1", true, "DONE 1 tests"},
		{"skip", skip, "", true, "no compiler"},
		{"skip in CI", skip, "1", false, "a skipped test counts as a failure"},
		{"fail", fail, "", false, "want 1"},
		{"end of the process", `os.Exit(3)`, "", false, "TestX"},
		{"no compilation", `nonsense`, "", false, "undefined: nonsense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":        "module x\n",
				"a/a_test.go":   "package a\nimport (\n\"os\"\n\"testing\"\n)\nvar _ = os.Exit\nfunc TestX(t *testing.T) { " + c.body + " }\n",
				"b/untested.go": "package b\n",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(script, "./...")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "ELRUN_CI="+c.ci)
			out, err := cmd.CombinedOutput()
			if (err == nil) != c.ok || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "chatter") {
				t.Errorf("got error %v and\n%s\nwant success %t and %q", err, out, c.ok, c.want)
			}
		})
	}
}
