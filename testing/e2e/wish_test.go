package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// wishing is a job that saves checkpoints only on a wish.
type wishing struct {
	*elrun
	program []string
}

// newWishing starts n peers of a loop with checkpoints, whose steps take at least the given time.
func newWishing(t *testing.T, n int, dir, pace string) wishing {
	t.Helper()
	w := wishing{&elrun{job: process.NewJob(t)}, []string{process.Example(t, "ownloop"), "--steps", "100000000", "--pace", pace, "--checkpoint", dir}}
	w.begin(t, exec.Command(process.Elrun(), append([]string{"run", "-n", strconv.Itoa(n), "--name", w.job.Name, "--listen", "local", "--"}, w.program...)...))
	w.untilMembers(t, n)
	return w
}

// untilMembers waits until the job has n members.
func (w wishing) untilMembers(t *testing.T, n int) {
	t.Helper()
	w.Until(t, "the members", func() bool {
		s, ok := w.status()
		return ok && len(s.Members) == n && s.Members[n-1].Rank == n-1
	})
}

// status returns the status of the job, if there is one.
func (w wishing) status() (launch.Status, bool) {
	job, err := launch.Find(context.Background(), w.job.Name)
	if err != nil {
		return launch.Status{}, false
	}
	s, err := job.Status(context.Background())
	return s, err == nil
}

// first returns the process ID of the peer of rank 0.
func (w wishing) first(t *testing.T) int {
	t.Helper()
	s, ok := w.status()
	if !ok || s.Members[0].Rank != 0 || s.Members[0].PID == 0 {
		t.Fatalf("status %+v", s)
	}
	return s.Members[0].PID
}

// written requires that the text is a line about a checkpoint in dir, and that the file is one of that step. It returns the step.
func (w wishing) written(t *testing.T, dir, text string) int64 {
	t.Helper()
	m := regexp.MustCompile(`^job ` + w.job.Name + `: checkpoint of step (\d+) on \S+: (\S+)\n$`).FindStringSubmatch(text)
	if m == nil || filepath.Dir(m[2]) != dir {
		t.Fatalf("%q tells of no checkpoint in %s", text, dir)
	}
	step, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(m[2])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Step != step {
		t.Errorf("%q, but the file is of step %d", text, c.Step)
	}
	return step
}

// elrun checkpoint writes one at each call, and names it. Calls at the same time may share one.
func TestCheckpointCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ck")
	w := newWishing(t, 2, dir, "2ms")
	before := int64(0)
	for range 3 {
		stdout, stderr, status := process.Command(t, "checkpoint", w.job.Name)
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		if step := w.written(t, dir, stdout); step < before {
			t.Errorf("a checkpoint of step %d after one of step %d", step, before)
		} else {
			before = step
		}
	}
	if stdout, stderr, status := process.Command(t, "checkpoint", "--no-wait", w.job.Name); status != 0 || strings.Count(stdout, "\n") != 1 {
		t.Errorf("--no-wait: status %d: %s%s", status, stdout, stderr)
	}
	if _, stderr, status := process.Command(t, "checkpoint", "--timeout=0s", w.job.Name); status != 2 {
		t.Errorf("--timeout 0: status %d: %s", status, stderr)
	}
	if _, stderr, status := process.Command(t, "checkpoint", "no-job-"+w.job.Name); status != 1 || !strings.Contains(stderr, "no such job") {
		t.Errorf("unknown job: status %d: %s", status, stderr)
	}
	w.Signal(t, syscall.SIGTERM)
	w.Wait(t)
}

// A wish outlives the peer of rank 0, and the elrun of that peer.
func TestCheckpointWhenRankZeroDies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ck")
	w := newWishing(t, 1, dir, "300ms")
	join := &elrun{job: w.job}
	join.begin(t, exec.Command(process.Elrun(), append([]string{"join", "--name", w.job.Name, "-n", "2", "--listen", "local", "--"}, w.program...)...))
	w.untilMembers(t, 3)
	ask := process.Start(t, exec.Command(process.Elrun(), "checkpoint", w.job.Name))
	process.Signal(t, w.first(t), syscall.SIGKILL)
	if status := ask.Wait(t); status != 0 {
		t.Fatalf("status %d: %s", status, ask.Err.String())
	}
	w.written(t, dir, ask.Out.String())
	join.Signal(t, syscall.SIGTERM)
	join.Wait(t)
}

// A wish that cannot be fulfilled ends with the reason in one line: the loop saves none, there is no folder, the write fails, the
// job ends before.
func TestCheckpointThatFails(t *testing.T) {
	refused := func(t *testing.T, e *elrun, want string) {
		t.Helper()
		stdout, stderr, status := process.Command(t, "checkpoint", e.job.Name)
		if status != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("status %d, %q: want %q", status, stdout+stderr, want)
		}
		e.Signal(t, syscall.SIGTERM)
		e.Wait(t)
	}
	own := start(t, "train", 2)
	own.expectRanks(t, 2)
	refused(t, own, "saves no checkpoints")
	refused(t, newWishing(t, 2, "", "2ms").elrun, "no folder for checkpoints")
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, newWishing(t, 2, filepath.Join(file, "ck"), "2ms").elrun, "could not be written, and the job goes on: ")

	w := newWishing(t, 2, filepath.Join(t.TempDir(), "ck"), "1h") // the next boundary never comes
	ask := process.Start(t, exec.Command(process.Elrun(), "checkpoint", w.job.Name))
	w.Until(t, "the wish", func() bool {
		_, _, status := process.Command(t, "checkpoint", "--no-wait", w.job.Name)
		return status == 0
	})
	w.Signal(t, syscall.SIGKILL)
	if status := ask.Wait(t); status != 1 || !strings.Contains(ask.Err.String(), "no such job") || strings.Count(ask.Err.String(), "\n") != 1 {
		t.Errorf("status %d: %s", status, ask.Err.String())
	}
}
