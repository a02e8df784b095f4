package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// again starts another elrun that begins a job of the same name.
func (e *elrun) again(t *testing.T, n string) *elrun {
	t.Helper()
	other := &elrun{job: e.job, finish: e.finish}
	other.run(t, "train", []string{"run", "-n", n, "--name", e.job.Name, "--listen", listen()})
	return other
}

// Of several elruns that begin jobs of one name at once, one runs its job. The others start nothing.
func TestSameNameAtOnce(t *testing.T) {
	for range 4 {
		first := start(t, "train", 1)
		all := []*elrun{first, first.again(t, "1"), first.again(t, "1"), first.again(t, "1")}
		process.Until(t, "the end of all but one", func() bool {
			all = slices.DeleteFunc(all, func(e *elrun) bool {
				if e.Running() {
					return false
				}
				const says = " is running already: choose another --name, or end that job by elrun stop "
				if status := e.Status(); status != 2 || !e.Says(says) || strings.Count(e.Err.String(), "\n") != 1 || e.Out.String() != "" {
					t.Errorf("status %d, %q, %q", status, e.Err.String(), e.Out.String())
				}
				return true
			})
			return len(all) <= 1
		})
		if len(all) != 1 {
			t.Fatal("no job runs")
		}
		all[0].expectSize(t, 0, 1)
		all[0].expectDone(t)
		first.job.CheckGone(t)
	}
}

// The name of a job whose elrun was killed is free as soon as its peers have ended, though the file of
// the socket is left. The name is free again after the next job, and its file is gone.
func TestNameOfAKilledElrun(t *testing.T) {
	dir, err := os.MkdirTemp("", "run") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	e.Signal(t, syscall.SIGKILL)
	process.Until(t, "the end of the peer", func() bool { return len(e.peers(t)) == 0 && process.Sockets(t, e.job.Name) == 0 })
	for range 2 {
		e = e.again(t, "1")
		e.expectSize(t, 0, 1)
		e.expectDone(t)
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "elrun", "*", e.job.Name+":*"))
	if err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

// A name stays taken while the peers of a killed elrun still run, and while elrun is stopped.
func TestNameOfAStoppedElrun(t *testing.T) {
	e := start(t, "half", 1)
	e.Expect(t, "joined")
	e.Signal(t, syscall.SIGSTOP)
	second := e.again(t, "1")
	if status := second.Wait(t); status != 2 || !second.Says("is running already") {
		t.Errorf("status %d, %s", status, second.Err.String())
	}
	e.Signal(t, syscall.SIGCONT)
	e.Signal(t, syscall.SIGTERM)
	e.Wait(t)
}
