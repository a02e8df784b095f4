package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// task starts the elrun of a task of a Slurm step of two tasks, with one peer. Slurm is only its
// variables here. The folder dir is shared by the tasks.
func (e *elrun) task(t *testing.T, rank int, dir string) *elrun {
	t.Helper()
	one := &elrun{job: e.job, finish: e.finish}
	cmd := exec.Command(process.Elrun(), "--min-peers", "2", "--rejoin-timeout", process.Limit.String(), "--listen", listen(), "--rendezvous", dir, process.Self(t))
	cmd.Env = append(os.Environ(), roleVariable+"=train", finishVariable+"="+e.finish, "SLURM_JOB_ID="+strconv.Itoa(os.Getpid()), "SLURM_STEP_ID=0",
		"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2", "SLURM_CLUSTER_NAME=lab", "SLURMD_NODENAME=n"+strconv.Itoa(rank),
		"SLURM_PROCID="+strconv.Itoa(rank), "SLURM_LOCALID=0")
	one.begin(t, cmd)
	return one
}

// expectTwo waits until the peer has printed a session of two members.
func (e *elrun) expectTwo(t *testing.T) {
	t.Helper()
	e.Until(t, "a session of two members", func() bool { return strings.Contains(e.Out.String(), " size=2 ") })
}

// The tasks of a Slurm step run elrun twice. At its second elrun, task 1 finds the end of the first job
// in the file of the step, because task 0 comes later, and waits for the second job.
func TestTwoElrunsInAStep(t *testing.T) {
	dir := t.TempDir()
	first := &elrun{job: process.NewJob(t), finish: filepath.Join(dir, "first")}
	both := []*elrun{first.task(t, 0, dir), first.task(t, 1, dir)}
	both[0].expectTwo(t)
	both[0].expectDone(t)
	if status := both[1].Wait(t); status != 0 {
		t.Fatalf("task 1: status %d", status)
	}
	second := &elrun{job: first.job, finish: filepath.Join(dir, "second")}
	waiting := second.task(t, 1, dir)
	waiting.Expect(t, "elrun: task 1 waits for task 0 to write ", "this task was in the step's job before, and task 0 has begun no other one")
	begun := second.task(t, 0, dir)
	begun.expectTwo(t)
	waiting.expectTwo(t)
	begun.expectDone(t)
	if status := waiting.Wait(t); status != 0 {
		t.Errorf("task 1: status %d", status)
	}
}
