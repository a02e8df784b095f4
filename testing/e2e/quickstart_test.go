package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// page has the programs of a document that a reader saves, and the commands that a reader runs, in
// order.
type page struct {
	files    map[string]string // by path
	commands []string
}

// readPage reads a document. A program is a fenced block after a line that ends in "save it as `PATH`:". A command is a line with
// an indentation of four spaces.
func readPage(t *testing.T, path string) (p page) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p.files = make(map[string]string)
	name, inside := "", false
	save := regexp.MustCompile("[Ss]ave (?:it|this) as `([^`]+)`:$")
	for line := range strings.Lines(string(b)) {
		switch text := strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(text, "```"):
			if inside = !inside; !inside {
				name = "" // the next block is another program, or none
			}
		case inside && name == "":
		case inside:
			p.files[name] += line
		case save.MatchString(text):
			name = save.FindStringSubmatch(text)[1]
		case strings.HasPrefix(text, "    "):
			p.commands = append(p.commands, strings.TrimSpace(text))
		}
	}
	return p
}

// Everything in docs/quickstart.md works as written, except that files go to a folder of the test instead of the clone.
func TestQuickstart(t *testing.T) {
	p := readPage(t, "../../docs/quickstart.md")
	if len(p.files) != 3 || len(p.commands) < 8 {
		t.Fatalf("%d programs and %d commands", len(p.files), len(p.commands))
	}
	dir := t.TempDir()
	for path, text := range p.files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := strings.NewReplacer("bin/", dir+"/bin/", "./my/", dir+"/my/")
	outputs := make(map[string]string)
	for _, command := range p.commands {
		// Without cgo, as make builds: nothing is compiled a second time.
		if strings.HasPrefix(command, "go ") {
			t.Errorf("%s: want CGO_ENABLED=0 before it", command)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", elsewhere.Replace(command))
		cmd.Dir, cmd.WaitDelay = "../..", time.Second
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-w") // without debug information go links faster
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, process.Tail(string(out), 4000))
		}
		outputs[command] = string(out)
	}
	if out := outputs["bin/elrun -n 3 bin/line"]; strings.Count(out, "after 300 steps: y = 1.0 + 2.0 x") != 3 {
		t.Errorf("the loop of one's own printed\n%s", out)
	}
	sums := make(map[string]bool)
	for _, n := range []int{2, 4} {
		out := outputs[fmt.Sprintf("bin/elrun -n %d bin/trained", n)]
		if strings.Count(out, "] y = 1.0 + 2.0 x") != n {
			t.Errorf("the trainer with %d peers printed\n%s", n, out)
		}
		sums[regexp.MustCompile("sha256=[0-9a-f]{64}").FindString(out)] = true
	}
	if len(sums) != 1 || sums[""] {
		t.Errorf("sums of 2 and 4 peers: %v", sums)
	}
}
