package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// job is a job of one or several elruns on this host. Its methods are called by the
// goroutine of the test.
type job struct {
	name   string
	spec   spec
	dir    string // of the job's files; the folder tmp in it is that of its processes
	elruns []*elrun
	notes  []event.Event // of what the test did
	ended  bool          // and has been looked at
}

// elrun is one of the elruns of a job.
type elrun struct {
	*eventLog
	job      *job
	cmd      *exec.Cmd
	out, err output
	done     chan struct{} // it has ended
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns all that was printed.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs elrun with n peers that train what s says. The test fails if at its end
// something of the job is left.
func start(t *testing.T, s spec, n int, flags ...string) *job {
	t.Helper()
	word := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
	j := &job{name: fmt.Sprintf("%.20s-%d-%d", word, os.Getpid(), time.Now().UnixMilli()%1e6), spec: s, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(j.dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	j.spec.Hurry = filepath.Join(j.dir, "hurry")
	t.Cleanup(func() { j.cleanUp(t) })
	j.run(t, slices.Concat([]string{"run", "--name", j.name, "-n", strconv.Itoa(n)}, flags))
	return j
}

// join runs another elrun, n peers of which join the job as neighbours.
func (j *job) join(t *testing.T, n int) *elrun {
	t.Helper()
	return j.run(t, []string{"join", "--name", j.name, "-n", strconv.Itoa(n)})
}

// run starts an elrun with these arguments, to which those that are always the same are
// added.
func (j *job) run(t *testing.T, args []string) *elrun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(j.spec)
	if err != nil {
		t.Fatal(err)
	}
	e := &elrun{eventLog: &eventLog{path: filepath.Join(j.dir, fmt.Sprintf("events-%d", len(j.elruns)))}, job: j, done: make(chan struct{})}
	e.cmd = exec.Command(os.Getenv(elrunVariable), append(args, "--listen", "local", "--events", e.path, "--", self)...)
	e.cmd.Env = append(os.Environ(), specVariable+"="+string(text), "TMPDIR="+filepath.Join(j.dir, "tmp"))
	e.cmd.Stdout, e.cmd.Stderr = &e.out, &e.err
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.done)
		_ = e.cmd.Wait() // the status is looked at in status
	}()
	j.note("process %d is elrun %v", e.cmd.Process.Pid, args)
	j.elruns = append(j.elruns, e)
	return e
}

// status waits for the end of an elrun, as long as there are steps, and returns its exit
// status.
func (e *elrun) status(t *testing.T) int {
	t.Helper()
	for e.running() {
		at := e.job.step()
		e.job.until(t, "a step, or the end of elrun", func() bool { return !e.running() || e.job.step() > at })
	}
	return e.cmd.ProcessState.ExitCode()
}

// running reports whether the elrun has not ended.
func (e *elrun) running() bool {
	select {
	case <-e.done:
		return false
	default:
		return true
	}
}

// peers returns those of its peers that run.
func (e *elrun) peers(t *testing.T) []process {
	t.Helper()
	return slices.DeleteFunc(processes(t, e.job.name), func(p process) bool { return p.parent != e.cmd.Process.Pid })
}

// peer returns the process of one of its peers.
func (e *elrun) peer(t *testing.T, index int) process {
	t.Helper()
	for _, p := range e.peers(t) {
		if p.index == index {
			return p
		}
	}
	t.Fatalf("peer %d does not run", index)
	return process{}
}

// scale asks for so many peers of the elrun.
func (e *elrun) scale(t *testing.T, n int) {
	t.Helper()
	e.job.note("scale elrun %d to %d", e.cmd.Process.Pid, n)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(elrunVariable), "scale", "--elrun", strconv.Itoa(e.cmd.Process.Pid), e.job.name, strconv.Itoa(n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("scale to %d: %v\n%s", n, err, out)
	}
}

// poll takes in what has been written to the event logs.
func (j *job) poll(t *testing.T) {
	t.Helper()
	for _, e := range j.elruns {
		if err := e.read(); err != nil {
			t.Fatal(err)
		}
	}
}

// step returns the last step that is known to have been committed by all.
func (j *job) step() int64 {
	var step int64
	for _, e := range j.elruns {
		step = max(step, e.step)
	}
	return step
}

// firstStep returns the first step that was reported.
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
		if e.epoch > epoch {
			v, epoch = e.view, e.epoch
		}
	}
	return v, epoch
}

// events returns all events so far.
func (j *job) events() []event.Event {
	var all []event.Event
	for _, e := range j.elruns {
		all = append(all, e.events...)
	}
	return all
}

// until polls a condition while the event logs are followed.
func (j *job) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if j.poll(t); condition() {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// pause lets a time pass.
func (j *job) pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
	j.poll(t)
}

// settle waits until n peers have made some steps together.
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
	return slices.ContainsFunc(j.elruns, func(e *elrun) bool { return strings.Contains("\n"+e.out.String(), "\ndone steps=") })
}

// kill sends a signal to a process, and returns when it did.
func (j *job) kill(t *testing.T, pid int, sig syscall.Signal) time.Time {
	t.Helper()
	j.note("%v to process %d", sig, pid)
	now := time.Now()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	return now
}

// hurry lets the peers go through the rest as fast as they can.
func (j *job) hurry(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.spec.Hurry, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
