package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/ticket"
)

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// job is a running job of elrun.
type job struct {
	name, log, stop string
	size            int
	cmd             *exec.Cmd
	out, err        output
	done            chan struct{} // elrun has ended
}

// startJob starts a job of so many members with flags of elrun and waits until it trains.
func startJob(t *testing.T, size int, flags ...string) *job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
	j := &job{name: fmt.Sprintf("%.28s-%d", name, os.Getpid()), log: filepath.Join(dir, "events"), stop: filepath.Join(dir, "stop"),
		size: size, done: make(chan struct{})}
	args := append([]string{"run", "-n", strconv.Itoa(size), "--name", j.name, "--listen", "local", "--events", j.log}, flags...)
	j.cmd = exec.Command(os.Getenv(elrunVariable), append(args, self)...)
	j.cmd.Env = append(os.Environ(), stepsVariable+"=200", stopVariable+"="+j.stop)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(j.done)
		_ = j.cmd.Wait() // the status is looked at in finish
	}()
	t.Cleanup(func() { j.cleanUp(t) })
	j.until(t, "the job to train", func() bool { return strings.Count(j.out.String(), "entered epoch=1 ") == size })
	return j
}

// cleanUp ends what a failed test left, and shows what was printed.
func (j *job) cleanUp(t *testing.T) {
	select {
	case <-j.done:
	default:
		_ = j.cmd.Process.Kill()
		<-j.done
	}
	if t.Failed() {
		b, _ := os.ReadFile(j.log) // empty if there is none
		t.Logf("stdout:\n%.3000s\nstderr:\n%.3000s\nend of the log:\n%s", j.out.String(), j.err.String(), b[max(0, len(b)-3000):])
	}
}

// until waits for a condition, as long as the job runs.
func (j *job) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-j.done:
			if condition() {
				return
			}
			t.Fatalf("the job ended before %s: %v", what, j.cmd.ProcessState)
		case <-timeout:
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// ticket asks for a ticket of the job.
func (j *job) ticket(t *testing.T) ticket.Ticket {
	t.Helper()
	out, err := exec.Command(os.Getenv(elrunVariable), "ticket", j.name).Output()
	if err != nil {
		t.Fatal(err)
	}
	k, err := ticket.Parse(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pids returns the processes of the members.
func (j *job) pids(t *testing.T) []int {
	t.Helper()
	var pids []int
	for _, m := range regexp.MustCompile(`entered epoch=1 size=\d+ pid=(\d+)`).FindAllStringSubmatch(j.out.String(), -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// end lets the job end and waits for that.
func (j *job) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.done:
	case <-time.After(limit):
		t.Fatalf("the job still runs after %v", limit)
	}
}

// finish lets the job end and checks that nothing has happened to it: it had one view until
// members left at the end, and its result is that of all steps.
func (j *job) finish(t *testing.T) {
	t.Helper()
	j.end(t)
	if status := j.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("status %d", status)
	}
	found := regexp.MustCompile(`result steps=(\d+) hash=(\w+) (.*)`).FindAllStringSubmatch(j.out.String(), -1)
	if len(found) != j.size {
		t.Errorf("%d of %d members have a result", len(found), j.size)
	}
	for _, f := range found {
		steps, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || f[2] != result(int64(j.size), steps) {
			t.Errorf("wrong result: %s", f[0])
		}
	}
	if len(found) > 0 && long() {
		t.Logf("%s steps: %s", found[0][1], found[0][3])
	}
	j.checkLog(t)
}

// checkLog looks for what attackers have brought about.
func (j *job) checkLog(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(j.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch body := e.Body.(type) {
		case event.Lost, event.Fenced, event.Quorum, event.Join, event.Resync:
			t.Errorf("%s", line)
		case event.View:
			if body.Reason != "start" && body.Reason != "leave" {
				t.Errorf("%s", line)
			}
		}
	}
}
