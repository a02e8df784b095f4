package process

import (
	"context"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// endPeriod is how long processes have to show their stacks, and to end when killed.
const endPeriod = 3 * time.Second

// Job is a job and the elruns of it that the test has started.
type Job struct {
	Name   string // unique to the test
	Elruns []*Process
}

// NewJob makes up a job. A peer of it that runs at the end of the test is an error, and is
// killed as its elruns are. If the test has failed, such peers first show their stacks, and
// the test's log has all that was printed. The temporary folders of the test outlive them.
func NewJob(t testing.TB) *Job {
	t.Helper()
	_ = t.TempDir() // which are removed by what is cleaned up after the job: it comes first
	j := &Job{Name: jobName(t)}
	t.Cleanup(func() { j.cleanUp(t) })
	return j
}

// Start starts an elrun of the job.
func (j *Job) Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := start(t, cmd)
	j.Elruns = append(j.Elruns, p)
	return p
}

// Peers returns the processes of the job that run.
func (j *Job) Peers(t testing.TB) []Peer {
	t.Helper()
	return Peers(t, j.Name)
}

// PeersOf returns the processes of the job that an elrun has started itself.
func (j *Job) PeersOf(t testing.TB, elrun *Process) []Peer {
	t.Helper()
	return slices.DeleteFunc(j.Peers(t), func(p Peer) bool { return p.Parent != elrun.PID() })
}

// CheckGone fails the test if processes or control sockets of the job are left.
func (j *Job) CheckGone(t testing.TB) {
	t.Helper()
	for _, p := range j.Peers(t) {
		t.Errorf("peer %d of job %s still runs as process %d", p.Index, j.Name, p.PID)
	}
	if n := Sockets(t, j.Name); n != 0 {
		t.Errorf("%d control sockets of job %s are left", n, j.Name)
	}
}

// cleanUp ends all that is left of the job.
func (j *Job) cleanUp(t testing.TB) {
	t.Helper()
	left := j.Peers(t)
	if t.Failed() {
		signalAll(t, left, syscall.SIGCONT)
		signalAll(t, left, syscall.SIGQUIT) // an elrun that still runs passes the stacks on
		for _, p := range j.Elruns {
			p.stacks()
		}
	}
	for _, p := range left {
		t.Errorf("peer %d of job %s was left as process %d", p.Index, j.Name, p.PID)
	}
	for _, p := range j.Elruns { // before peers, in whose place they might start others
		_ = p.Cmd.Process.Kill() // an error means that it has ended
	}
	signalAll(t, j.Peers(t), syscall.SIGKILL)
	for _, p := range j.Elruns {
		p.Kill() // its output ends when all have ended that write to it
		p.show(t)
	}
}

// signalAll sends a signal to processes, and waits a while for their end if it ends them.
func signalAll(t testing.TB, all []Peer, sig syscall.Signal) {
	t.Helper()
	for _, p := range all {
		Signal(t, p.PID, sig)
	}
	if sig != syscall.SIGCONT {
		Holds(context.Background(), endPeriod, func() bool {
			return !slices.ContainsFunc(all, func(p Peer) bool { return Alive(p.PID) })
		})
	}
}
