package k8s

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// docsCommands returns the commands in the section about Kubernetes in docs/hosts.md.
func docsCommands(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Kubernetes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, indented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    "); indented {
			all = append(all, command)
		}
	}
	return all
}

// The commands in docs/hosts.md are valid. This test does not run make, and its kubectl is a script
// that prints the input. make k8s tests the effect on a cluster.
func TestDocs(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nfor word; do last=$word; done\ncase $1 in apply) cat \"$last\";; patch) echo \"$last\";; *) exit 1;; esac\n"
	if err := errors.Join(os.Symlink(process.Elrun(), filepath.Join(dir, "elrun")), os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "key"), strings.Repeat("k", 32))
	ran := 0
	for _, command := range docsCommands(t) {
		if strings.HasPrefix(command, "make ") {
			continue
		}
		ran++
		want := 0
		if strings.Contains(command, "--discover") {
			command, want = strings.Replace(command, "--discover", "--listen 127.0.0.1 --discover-timeout 1ms --discover", 1), 1
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Fatalf("%s: status %d, %v: %s", command, got, err, out)
		}
		switch {
		case want == 1 && !strings.Contains(string(out), "was not found in time"):
			t.Errorf("%s: %s", command, out)
		case strings.HasPrefix(command, "kubectl apply") && !strings.Contains(string(out), "parallelism: 4"):
			t.Errorf("%s: %s", command, out)
		case strings.HasPrefix(command, "kubectl patch") && !json.Valid(out):
			t.Errorf("%s: %s", command, out)
		}
	}
	if ran != 4 {
		t.Errorf("%d commands, want 4", ran)
	}
}
