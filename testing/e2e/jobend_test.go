package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// The status of a job depends on the peers that had its result. If some of these peers cannot save
// the result, the status is 1, and elrun prints the reason. If all peers save the result to the
// same file, the status is 0.
func TestStatusIsThatOfTheHolders(t *testing.T) {
	program, data := mnist(t)
	for name, c := range map[string]struct {
		who  string // pattern of the indices of peers that save to a path which does not exist
		want int
		text string
	}{
		"all":  {"[0-9]", 1, "elrun: the job fails: it had a result, but then peer"},
		"one":  {"1", 1, "elrun: the job fails: it had a result, but then peer 1"},
		"none": {"x", 0, "done steps=20"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &elrun{job: process.NewJob(t)}
			dir := t.TempDir()
			script := fmt.Sprintf(`case "$ELRUN_INDEX" in %s) set -- "$@" --save %s/no/such/folder;; *) set -- "$@" --save %s;; esac; exec "$@"`,
				c.who, dir, filepath.Join(dir, "weights"))
			e.launch(t, []string{"-n", "3", "--name", e.job.Name, "--listen", listen(), "sh", "-c", script, "sh",
				program, "--data", data, "--model", "softmax", "--steps", "20"})
			if status := e.Wait(t); status != c.want {
				t.Errorf("status %d, want %d", status, c.want)
			}
			e.Expect(t, c.text)
		})
	}
}

// If a shell command runs two programs one after the other, they are two jobs. elrun reports the
// result of the second job.
func TestTwoProgramsInOneCommand(t *testing.T) {
	program, data := mnist(t)
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, []string{"-n", "3", "--name", e.job.Name, "--listen", listen(), "sh", "-c",
		`"$@" --seed 1 && "$@" --seed 2`, "sh", program, "--data", data, "--model", "softmax", "--steps", "20"})
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	e.Expect(t, "all peers have finished a program and begun another one", "elrun: the result of the finished program: done steps=20 peers=3")
	if n := strings.Count("\n"+e.Out.String(), "\ndone steps=20 peers=3"); n != 1 {
		t.Errorf("%d results were printed", n)
	}
}
