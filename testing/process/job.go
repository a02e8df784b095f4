package process

import (
	"context"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// endPeriod is the time that processes have to print their stacks, and to end after SIGKILL.
const endPeriod = 3 * time.Second

// Job is a job of elrun, with the elrun processes that the test has started for this job.
type Job struct {
	Name   string // unique to the test
	Elruns []*Process
}

// NewJob returns a job with a unique name. A peer of the job that still runs at the end of the test
// is an error. At the end of the test such peers and the job's elrun processes are killed. If the
// test has failed, the peers first print their stacks, and the test's log gets all output. The
// test's temporary folders are removed only after that.
func NewJob(t testing.TB) *Job {
	t.Helper()
	_ = t.TempDir() // removes the folders after the job's clean-up, because it is registered first
	j := &Job{Name: jobName(t)}
	t.Cleanup(func() { j.cleanUp(t) })
	return j
}

// Start starts an elrun process of the job.
func (j *Job) Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := start(t, cmd)
	j.Elruns = append(j.Elruns, p)
	return p
}

// Peers returns the running processes of the job.
func (j *Job) Peers(t testing.TB) []Peer {
	t.Helper()
	return Peers(t, j.Name)
}

// PeersOf returns the processes of the job that the given elrun has started.
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

// cleanUp ends all remaining processes of the job.
func (j *Job) cleanUp(t testing.TB) {
	t.Helper()
	left := j.Peers(t)
	if t.Failed() {
		signalAll(t, left, syscall.SIGCONT)
		signalAll(t, left, syscall.SIGQUIT) // while elrun runs, it passes on the stacks that peers print
		for _, p := range j.Elruns {
			p.stacks()
		}
	}
	for _, p := range left {
		t.Errorf("peer %d of job %s was left as process %d", p.Index, j.Name, p.PID)
	}
	for _, p := range j.Elruns { // elrun first, because it might restart peers
		_ = p.Cmd.Process.Kill() // fails only if it has ended
	}
	signalAll(t, j.Peers(t), syscall.SIGKILL)
	for _, p := range j.Elruns {
		p.Kill() // its output ends when all processes that write to it have ended
		p.show(t)
	}
}

// signalAll sends a signal to processes. If the signal ends processes, it waits for their end, up to endPeriod.
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
