package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// saving is a training on MNIST that saves checkpoints to a folder of the test.
type saving struct {
	t       *testing.T
	dir     string
	program []string // with the flags of all jobs
}

func newSaving(t *testing.T) saving {
	t.Helper()
	program, data := mnist(t)
	dir := filepath.Join(t.TempDir(), "ck")
	return saving{t, dir, []string{program, "--data", data, "--model", "softmax", "--checkpoint", dir, "--checkpoint-every", "20"}}
}

// run runs a job of 2 peers to its end, with further flags of the program.
func (s saving) run(want int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	command := append([]string{"-n", "2", "--listen", "local", "--"}, s.program...)
	stdout, stderr, status := process.Command(s.t, append(command, args...)...)
	if status != want {
		s.t.Fatalf("%q: status %d, want %d\n%s%s", args, status, want, stdout, stderr)
	}
	return stdout, stderr
}

// start starts a job without an end, and waits for its checkpoint of a step.
func (s saving) start(step int, flags ...string) *elrun {
	s.t.Helper()
	e := &elrun{job: process.NewJob(s.t)}
	args := append([]string{"run", "-n", "2", "--name", e.job.Name, "--listen", "local"}, flags...)
	e.begin(s.t, exec.Command(process.Elrun(), append(append(args, s.program...), "--steps", "100000000")...))
	e.Until(s.t, "a checkpoint", func() bool {
		_, err := os.Stat(s.file(step))
		return err == nil
	})
	return e
}

// file returns the path of the checkpoint of a step.
func (s saving) file(step int) string {
	return filepath.Join(s.dir, fmt.Sprintf("step-%012d.safetensors", step))
}

// runOf returns the ID of the run that wrote the checkpoint of a step.
func (s saving) runOf(step int) string {
	s.t.Helper()
	c, err := checkpoint.Open(s.file(step))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	return c.Run
}

// expect requires that a text has all the given words.
func (s saving) expect(text string, words ...string) {
	s.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			s.t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// A job does not mix its checkpoints with those of another run. It resumes from them if it is asked to, says from which run, and
// keeps the ID of the run.
func TestCheckpointsOfAnotherRun(t *testing.T) {
	s := newSaving(t)
	s.run(0, "--steps", "60", "--lr", ".2")
	run := s.runOf(60)
	_, stderr := s.run(1, "--steps", "40", "--lr", ".05")
	s.expect(stderr, "belongs to another run ("+run+"), which saved step 60", "write to another folder, or resume that run", "--resume DIR")
	if strings.Contains(stderr, "still running") {
		t.Errorf("the job before has ended:\n%s", stderr)
	}
	// More steps than the checkpoint has, with another setting.
	_, stderr = s.run(0, "--steps", "80", "--lr", ".05", "--resume", s.dir)
	s.expect(stderr, "resumed after step 60 of run "+run, "--lr 0.05 (was 0.2)")
	if again := s.runOf(80); again != run {
		t.Errorf("the run %s has the ID %s after it was resumed", run, again)
	}
	// Fewer steps than the checkpoint has.
	stdout, stderr := s.run(0, "--steps", "40", "--resume", s.dir)
	s.expect(stderr, "resumed after step 80", "the checkpoint is of step 80, and this job has 40 steps: nothing is left to train")
	s.expect(stdout, "done steps=80")
}

// Of two jobs at once in a folder the second is refused, also if it resumes, and changes nothing.
func TestTwoJobsInOneFolder(t *testing.T) {
	s := newSaving(t)
	first := s.start(20)
	for _, args := range [][]string{{"--steps", "40"}, {"--steps", "1000000", "--resume", s.dir}} {
		_, stderr := s.run(1, args...)
		s.expect(stderr, s.dir+" belongs to another run")
	}
	if _, err := os.Stat(s.dir); err != nil || !first.Running() {
		t.Errorf("error %v; does the first job run: %v", err, first.Running())
	}
	first.Signal(t, syscall.SIGTERM)
	if status := first.Wait(t); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
}

// If all peers of a job die, and are started again, they go on from the job's own checkpoint without being asked to, and say so.
func TestJobBeginsAnewFromItsCheckpoint(t *testing.T) {
	s := newSaving(t)
	e := s.start(20, "--restart", "2")
	// elrun is stopped meanwhile, so that it restarts no peer before all have died.
	e.Signal(t, syscall.SIGSTOP)
	for _, pid := range e.peers(t) {
		process.Signal(t, pid, syscall.SIGKILL)
	}
	e.Signal(t, syscall.SIGCONT)
	e.Expect(t, "begin anew", "mnist: resumed after step ", " of run ")
	// It writes to the folder again.
	begun := newestStep(t, s.dir)
	e.Until(t, "a later checkpoint", func() bool { return newestStep(t, s.dir) > begun })
	e.Signal(t, syscall.SIGTERM)
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
	if text := e.Err.String(); strings.Contains(text, "belongs to") {
		t.Errorf("a later generation is refused:\n%s", text)
	}
}

// newestStep returns the latest step of the checkpoints in a folder.
func newestStep(t *testing.T, dir string) (step int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "step-*.safetensors"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("checkpoints %v, error %v", paths, err)
	}
	step, err = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(paths[len(paths)-1]), "step-"), ".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return step
}

// A checkpoint of an earlier version, which has no ID of its run, is resumed with a line. A fresh start beside it is refused.
func TestCheckpointWithoutID(t *testing.T) {
	s := newSaving(t)
	s.run(0, "--steps", "20")
	c, err := checkpoint.Open(s.file(20))
	if err != nil {
		t.Fatal(err)
	}
	header := c.Header
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	tensors, _, err := checkpoint.ReadSafetensors(s.file(20))
	if err != nil {
		t.Fatal(err)
	}
	header.Run, header.Written, header.Program = "", 0, nil
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Write(s.dir, header, tensors); err != nil {
		t.Fatal(err)
	}
	_, stderr := s.run(1, "--steps", "40")
	s.expect(stderr, "belongs to another run (without an ID), which saved step 20")
	_, stderr = s.run(0, "--steps", "40", "--resume", s.dir)
	s.expect(stderr, "resumed after step 20 from ", "which has no ID of a run: an earlier version of elrun wrote it")
	if s.runOf(40) == "" {
		t.Error("the resumed run has no ID")
	}
}
