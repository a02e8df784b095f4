package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// job is a job of Slurm with its own folder.
type job struct {
	l   *lab
	dir string
	log *process.Log
	p   *process.Process // srun, salloc or sbatch --wait
}

// start starts a command of Slurm in a new folder, which has a link to the program ./train.
func (l *lab) start(t *testing.T, args ...string) *job {
	t.Helper()
	return l.again(t, t.TempDir(), args...)
}

// again starts a command of Slurm in an existing folder, for example the folder of an earlier job.
func (l *lab) again(t *testing.T, dir string, args ...string) *job {
	t.Helper()
	if err := os.Symlink(l.path("train"), filepath.Join(dir, "train")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	h := *l.hosts[0]
	cmd := h.on(args...)
	for i, a := range cmd.Args {
		if strings.HasPrefix(a, "--wd=") {
			cmd.Args[i] = "--wd=" + dir
		}
	}
	cmd.Env = append(cmd.Env, "TRAIN_DIR="+dir)
	return &job{l, dir, process.NewLog(t, filepath.Join(dir, "events")), process.Start(t, cmd)}
}

// script runs a shell script with sbatch --wait, which ends when the job ends.
func (l *lab) script(t *testing.T, script string, flags ...string) *job {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"sbatch", "--wait", "--output=out"}, flags...)
	return l.again(t, dir, append(args, "job.sh")...)
}

// trains waits for a step with the given number of members.
func (j *job) trains(t *testing.T, members int) {
	t.Helper()
	j.p.Until(t, fmt.Sprintf("a step of %d members", members), func() bool {
		j.log.Read(t)
		return j.log.Step > 0 && j.log.StepEpoch == j.log.ViewEvent.Epoch && len(j.log.View.Members) == members
	})
}

// finish makes the job take its remaining steps at full speed.
func (j *job) finish(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, finishFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// output returns all that the job has printed.
func (j *job) output(t *testing.T) string {
	t.Helper()
	out := j.p.Out.String() + j.p.Err.String()
	files, _ := filepath.Glob(filepath.Join(j.dir, "out*")) // no error: the pattern is valid
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out += string(b)
	}
	return out
}

// finishes lets the job take its remaining steps. It checks that the job prints the result of a
// single peer exactly once, and ends with the given status.
func (j *job) finishes(t *testing.T, want int) {
	t.Helper()
	j.finish(t)
	status, out := j.p.Wait(t), j.output(t)
	if status != want || !strings.Contains(out, total()) {
		t.Errorf("status %d, want %d and %s in\n%s", status, want, total(), out)
	}
	if n := strings.Count(out, "done steps="); n != 1 || !strings.Contains(out, "sha256="+j.l.alone) {
		t.Errorf("%d results, want 1 with sha256 %s:\n%s", n, j.l.alone, out)
	}
	j.gone(t)
}

// gone checks that no process of the job is left.
func (j *job) gone(t *testing.T) {
	t.Helper()
	process.Until(t, "the end of all processes", func() bool {
		for _, h := range j.l.hosts {
			for _, p := range [][]string{{"-x", "elrun"}, {"-f", process.Self(t) + " " + playWord}} {
				if out, _ := h.on(append([]string{"pgrep"}, p...)...).Output(); len(out) > 0 { // pgrep fails if it finds no process
					return false
				}
			}
		}
		return true
	})
}

// id returns Slurm's number of the job, which must be the only running job.
func (j *job) id(t *testing.T) string {
	t.Helper()
	id := ""
	j.p.Until(t, "the job's number", func() bool {
		id = strings.TrimSpace(j.l.slurm(t, "squeue", "-h", "-t", "R", "-o", "%A"))
		return id != "" && !strings.Contains(id, "\n")
	})
	return id
}

// alone returns the SHA-256 of the result of a single, undisturbed peer.
func alone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, finishFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(process.Elrun(), "-n", "1", process.Self(t), playWord)
	cmd.Env = append(os.Environ(), "TRAIN_DIR="+dir)
	out, err := cmd.Output()
	sum := regexp.MustCompile(`sha256=([0-9a-f]+)`).FindSubmatch(out)
	if err != nil || sum == nil {
		t.Fatalf("one peer alone: %v, %q", err, out)
	}
	return string(sum[1])
}

// perNode returns flags that start one elrun on each of the three hosts.
func perNode(more ...string) []string {
	return append([]string{"srun", "--nodes=3", "--ntasks-per-node=1", "--no-kill"}, more...)
}

func TestSlurm(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, l *lab)
		long bool // only in the long form
	}{
		{"an elrun a node", anElrunANode, false},
		{"an elrun a task", anElrunATask, false},
		{"a script with srun", aScriptWithSrun, true},
		{"a script with one elrun", aScriptWithOneElrun, false},
		{"a script with one elrun is cancelled", aScriptWithOneElrunIsCancelled, true},
		{"an allocation", anAllocation, true},
		{"a task leaves", aTaskLeaves, false},
		{"task 0 is killed", taskZeroIsKilled, false},
		{"the job is cancelled", theJobIsCancelled, false},
		{"drain", drain, false},
		{"requeue", requeue, false},
		{"time limit", timeLimit, true},
		{"documented commands", documented, false},
		{"slurmd is killed", slurmdIsKilled, false},
	} {
		if !c.long || long() {
			t.Run(c.name, func(t *testing.T) { c.run(t, l) })
		}
	}
}

func anElrunANode(t *testing.T, l *lab) {
	j := l.start(t, perNode("elrun", "-n", "2", "--events", "events", "./train")...)
	j.trains(t, 6)
	j.finishes(t, 0)
}

func anElrunATask(t *testing.T, l *lab) {
	j := l.start(t, "srun", "--nodes=3", "--ntasks=5", "elrun", "--events", "events", "./train")
	j.trains(t, 5)
	j.finishes(t, 0)
	if out := j.output(t); !strings.Contains(out, "[0@n1:1] total") || !strings.Contains(out, "[0@n3:0] total") {
		t.Errorf("output:\n%s", out)
	}
}

func aScriptWithSrun(t *testing.T, l *lab) {
	j := l.script(t, "srun elrun --events events ./train\n", "--nodes=3", "--ntasks-per-node=1")
	j.trains(t, 3)
	j.finishes(t, 0)
}

func aScriptWithOneElrun(t *testing.T, l *lab) {
	j := l.script(t, "elrun --connect-timeout 4m --events events ./train\n", "--nodes=3", "--ntasks-per-node=2")
	j.trains(t, 6)
	j.finishes(t, 0)
	if out := j.output(t); !strings.Contains(out, "3 hosts, reached by srun: n1:2,n2:2,n3:2") || !strings.Contains(out, "[5@n3] total") {
		t.Errorf("output:\n%s", out)
	}
}

// scancel asks all peers of the one elrun to leave, with and without --signal=TERM. A new job
// resumes from their state.
func aScriptWithOneElrunIsCancelled(t *testing.T, l *lab) {
	for name, cancel := range map[string][]string{"scancel": {"scancel"}, "scancel --signal=TERM": {"scancel", "--signal=TERM"}} {
		t.Run(name, func(t *testing.T) {
			j := l.script(t, "elrun --connect-timeout 4m --events events ./train\n", "--nodes=3", "--ntasks-per-node=1")
			j.trains(t, 3)
			l.slurm(t, append(cancel, j.id(t))...)
			j.p.Wait(t)
			j.gone(t)
			j.goesOn(t)
		})
	}
}

func anAllocation(t *testing.T, l *lab) {
	j := l.start(t, "salloc", "--nodes=2", "elrun", "--connect-timeout", "4m", "--events", "events", "./train")
	j.trains(t, 2)
	j.finishes(t, 0)
}

// elruns returns the process IDs of the host's elrun processes, in the PID namespace of the host.
func (h *host) elruns(t *testing.T) []string {
	t.Helper()
	return strings.Fields(h.run(t, "pgrep", "-x", "elrun"))
}

// One task is asked to leave. No peer is lost, the other tasks continue, and srun returns the
// status of the task.
func aTaskLeaves(t *testing.T, l *lab) {
	j := l.start(t, perNode("elrun", "--events", "events", "./train")...)
	j.trains(t, 3)
	l.hosts[1].run(t, append([]string{"kill", "-TERM"}, l.hosts[1].elruns(t)...)...)
	j.trains(t, 2)
	j.finishes(t, 128+int(syscall.SIGTERM))
	j.lossless(t)
}

// lossless checks that no peer was lost.
func (j *job) lossless(t *testing.T) {
	t.Helper()
	for _, e := range j.log.Read(t).Events {
		if strings.Contains(fmt.Sprintf("%T", e.Body), "Lost") {
			t.Errorf("lost: %+v", e)
		}
	}
}

// The launcher that started the job is killed, and its peer leaves. Another launcher prints the
// result. The tasks write to files, because srun drops output in transit after a signal has killed a
// task.
func taskZeroIsKilled(t *testing.T, l *lab) {
	j := l.start(t, perNode("--kill-on-bad-exit=0", "--output=out-%t", "elrun", "--events", "events", "./train")...)
	j.trains(t, 3)
	l.hosts[0].run(t, append([]string{"kill", "-KILL"}, l.hosts[0].elruns(t)...)...)
	j.trains(t, 2)
	j.finishes(t, 128+int(syscall.SIGKILL))
}

// All peers are asked to leave at the same time. No step is lost, and another job resumes from
// their state.
func theJobIsCancelled(t *testing.T, l *lab) {
	for name, cancel := range map[string][]string{"scancel": {"scancel"}, "scancel --signal=TERM": {"scancel", "--signal=TERM"}} {
		t.Run(name, func(t *testing.T) {
			j := l.start(t, perNode("elrun", "--events", "events", "./train")...)
			j.trains(t, 3)
			l.slurm(t, append(cancel, j.id(t))...)
			if status := j.p.Wait(t); status != 128+int(syscall.SIGTERM) {
				t.Errorf("status %d", status)
			}
			j.gone(t)
			j.lossless(t)
			j.goesOn(t)
		})
	}
}

// goesOn runs another job in the folder of a job that all peers have left. The new job must resume
// where the earlier job ended.
func (j *job) goesOn(t *testing.T) {
	t.Helper()
	step, _, err := latest(j.dir)
	if err != nil || step < j.log.Read(t).Step {
		t.Errorf("step %d was written down, error %v; step %d was reported", step, err, j.log.Step)
	}
	next := j.l.again(t, j.dir, "srun", "--nodes=2", "--ntasks-per-node=1", "elrun", "./train")
	next.finishes(t, 0)
	if out := next.output(t); !strings.Contains(out, fmt.Sprintf("began after step %d\n", step)) {
		t.Errorf("want it to begin after step %d:\n%s", step, out)
	}
}

// Slurm drains a host. The peer on this host trains until its launcher receives a signal. A second
// Slurm job joins with a ticket.
func drain(t *testing.T, l *lab) {
	j := l.start(t, perNode("elrun", "--name", "drained", "--events", "events", "./train")...)
	j.trains(t, 3)
	l.slurm(t, "scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=test")
	defer l.idle(t)
	defer l.slurm(t, "scontrol", "update", "NodeName=n3", "State=RESUME")
	ticket := strings.TrimSpace(l.hosts[0].run(t, "elrun", "ticket", "drained"))
	if err := os.WriteFile(filepath.Join(j.dir, "ticket"), []byte(ticket), 0o600); err != nil {
		t.Fatal(err)
	}
	more := l.again(t, j.dir, "srun", "--nodes=1", "--ntasks=2", "elrun", "join", "@ticket", "./train")
	j.trains(t, 5)
	l.hosts[2].run(t, append([]string{"kill", "-TERM"}, l.hosts[2].elruns(t)...)...)
	j.trains(t, 4)
	j.finishes(t, 128+int(syscall.SIGTERM))
	if status := more.p.Wait(t); status != 0 {
		t.Errorf("status %d of the second job", status)
	}
	j.lossless(t)
}

// Slurm requeues a script. The second run of the script resumes where the first run ended.
func requeue(t *testing.T, l *lab) {
	j := l.script(t, "srun elrun --events events-$SLURM_RESTART_COUNT ./train\n", "--nodes=3", "--ntasks-per-node=1", "--requeue", "--open-mode=append")
	j.log = process.NewLog(t, filepath.Join(j.dir, "events-"))
	j.trains(t, 3)
	id := j.id(t)
	l.slurm(t, "scontrol", "requeue", id)
	j.p.Until(t, "the job in the queue", func() bool {
		return strings.TrimSpace(l.slurm(t, "squeue", "-h", "-o", "%t")) == "PD"
	})
	j.lossless(t)
	step, _, err := latest(j.dir)
	if err != nil || step < j.log.Read(t).Step {
		t.Errorf("step %d was written down, error %v; step %d was reported", step, err, j.log.Step)
	}
	// Slurm starts a requeued job after two minutes, or at the StartTime set here. The time is two
	// seconds ahead because hosts refuse a job's credentials that are as old as the requeue.
	l.slurm(t, "scontrol", "update", "JobId="+id, "StartTime=now+2")
	j.log = process.NewLog(t, filepath.Join(j.dir, "events-1"))
	j.trains(t, 3)
	j.finishes(t, 0)
	if out := j.output(t); !strings.Contains(out, fmt.Sprintf("began after step %d\n", step)) {
		t.Errorf("want it to begin after step %d:\n%s", step, out)
	}
}

// A job reaches its time limit. All peers leave after Slurm's signal at the limit, or after the
// signal that --signal requests before the limit. Slurm checks the limit every 30 seconds.
func timeLimit(t *testing.T, l *lab) {
	for name, flags := range map[string][]string{"limit": {"--time=1"}, "signal": {"--time=2", "--signal=TERM@60"}} {
		t.Run(name, func(t *testing.T) {
			j := l.script(t, "srun elrun --events events ./train\n", append(flags, "--nodes=3", "--ntasks-per-node=1")...)
			j.trains(t, 3)
			if status := j.p.Wait(t); status == 0 {
				t.Error("status 0")
			}
			j.gone(t)
			j.lossless(t)
			j.goesOn(t)
		})
	}
}

// The Slurm daemon of a host is killed. The tasks of the job continue.
func slurmdIsKilled(t *testing.T, l *lab) {
	j := l.start(t, perNode("elrun", "--events", "events", "./train")...)
	j.trains(t, 3)
	l.hosts[2].run(t, "sh", "-c", "kill -9 $(cat /run/slurmd.pid)")
	at := j.log.Read(t).Step
	j.p.Until(t, "further steps", func() bool { return j.log.Read(t).Step > at+5 })
	l.hosts[2].run(t, "slurmd")
	j.finishes(t, 0)
	j.lossless(t)
	l.idle(t)
}
