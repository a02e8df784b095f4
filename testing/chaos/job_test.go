package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// job is a job of one or several elrun processes on this host. Only the goroutine of the test calls its methods.
type job struct {
	*process.Job
	spec   spec
	dir    string // folder of the job's files; its processes use the subfolder tmp
	elruns []*elrun
	notes  []event.Event // actions of the test
}

// elrun is one elrun process of a job.
type elrun struct {
	*process.Process
	*process.Log
	job *job
}

// start starts elrun with n peers that train according to s. The test fails if a process of the job
// is left at the end of the test.
func start(t *testing.T, s spec, n int, flags ...string) *job {
	t.Helper()
	j := &job{spec: s, dir: t.TempDir()}
	t.Cleanup(func() { j.show(t) }) // registered first, so it runs last, when all processes have ended
	j.Job = process.NewJob(t)
	if err := os.Mkdir(filepath.Join(j.dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	j.spec.Release = filepath.Join(j.dir, "release")
	j.run(t, slices.Concat([]string{"run", "--name", j.Name, "-n", strconv.Itoa(n)}, flags))
	return j
}

// join starts another elrun on this host. Its n peers join the job.
func (j *job) join(t *testing.T, n int) *elrun {
	t.Helper()
	return j.run(t, []string{"join", "--name", j.Name, "-n", strconv.Itoa(n)})
}

// run starts an elrun with these arguments and with the arguments that all elrun processes of the
// job have.
func (j *job) run(t *testing.T, args []string) *elrun {
	t.Helper()
	text, err := json.Marshal(j.spec)
	if err != nil {
		t.Fatal(err)
	}
	e := &elrun{Log: process.NewLog(t, filepath.Join(j.dir, fmt.Sprintf("events-%d", len(j.elruns)))), job: j}
	cmd := exec.Command(process.Elrun(), append(args, "--listen", "local", "--events", e.Path, "--", process.Self(t))...)
	cmd.Env = append(os.Environ(), specVariable+"="+string(text), "TMPDIR="+filepath.Join(j.dir, "tmp"))
	e.Process = j.Start(t, cmd)
	j.note("process %d is elrun %v", e.PID(), args)
	j.elruns = append(j.elruns, e)
	return e
}

// status waits for the end of an elrun and returns its exit status. The test fails if the job makes
// no step for too long.
func (e *elrun) status(t *testing.T) int {
	t.Helper()
	for e.Running() {
		at := e.job.step()
		e.job.until(t, "a step, or the end of elrun", func() bool { return !e.Running() || e.job.step() > at })
	}
	return e.Status()
}

// peers returns the running peers of this elrun.
func (e *elrun) peers(t *testing.T) []process.Peer {
	t.Helper()
	return e.job.PeersOf(t, e.Process)
}

// peer returns the peer of this elrun with an index.
func (e *elrun) peer(t *testing.T, index int) process.Peer {
	t.Helper()
	for _, p := range e.peers(t) {
		if p.Index == index {
			return p
		}
	}
	t.Fatalf("peer %d does not run", index)
	return process.Peer{}
}

// scale makes this elrun run n peers.
func (e *elrun) scale(t *testing.T, n int) {
	t.Helper()
	e.job.note("scale elrun %d to %d", e.PID(), n)
	out, says, status := process.Command(t, "scale", "--elrun", strconv.Itoa(e.PID()), e.job.Name, strconv.Itoa(n))
	if status != 0 {
		t.Errorf("scale to %d: status %d\n%s%s", n, status, out, says)
	}
}

// poll reads new events from the event logs.
func (j *job) poll(t *testing.T) {
	t.Helper()
	for _, e := range j.elruns {
		e.Read(t)
	}
}

// step returns the last step in the event logs.
func (j *job) step() int64 {
	var step int64
	for _, e := range j.elruns {
		step = max(step, e.Step)
	}
	return step
}

// firstStep returns the first reported step.
func (j *job) firstStep() int64 {
	for _, e := range j.events() {
		if _, ok := e.Body.(event.Step); ok {
			return e.Step
		}
	}
	return 0
}

// view returns the latest view and its epoch.
func (j *job) view() (v event.View, epoch uint64) {
	for _, e := range j.elruns {
		if e.ViewEvent.Epoch > epoch {
			v, epoch = e.View, e.ViewEvent.Epoch
		}
	}
	return v, epoch
}

// events returns all events so far.
func (j *job) events() []event.Event {
	var all []event.Event
	for _, e := range j.elruns {
		all = append(all, e.Events...)
	}
	return all
}

// until waits for a condition, and reads the event logs before each check.
func (j *job) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	process.Until(t, what, func() bool { j.poll(t); return condition() })
}

// pause waits for a time, and then reads the event logs.
func (j *job) pause(t *testing.T, d time.Duration) {
	t.Helper()
	process.Pause(t, d)
	j.poll(t)
}

// settle waits for a view of n members and for three more steps, or the result of the job.
func (j *job) settle(t *testing.T, n int) {
	t.Helper()
	size := func() int {
		v, _ := j.view()
		return len(v.Members)
	}
	j.until(t, fmt.Sprintf("a view of %d members", n), func() bool { return size() == n })
	at := j.step()
	j.until(t, fmt.Sprintf("steps of %d members", n), func() bool { return j.step() > at+2 || j.finished() })
}

// finished reports whether a peer has reported the job's result.
func (j *job) finished() bool {
	return slices.ContainsFunc(j.elruns, func(e *elrun) bool { return strings.Contains("\n"+e.Out.String(), "\ndone steps=") })
}

// kill sends a signal to a process, and returns the time of sending.
func (j *job) kill(t *testing.T, pid int, sig syscall.Signal) time.Time {
	t.Helper()
	j.note("%v to process %d", sig, pid)
	now := time.Now()
	process.Signal(t, pid, sig)
	return now
}

// speedUp makes the peers take the remaining steps as fast as they can.
func (j *job) speedUp(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.spec.Release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
