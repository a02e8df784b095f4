package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// finish waits for the end of the job, checks that the first elrun tells of a good one and
// that nothing is left, and returns the SHA-256 of the weights.
func (j *job) finish(t *testing.T) string {
	t.Helper()
	first := j.elruns[0]
	if status := first.status(t); status != 0 {
		t.Errorf("elrun ended with status %d", status)
	}
	for _, e := range j.elruns[1:] {
		e.status(t) // that of one whose peers were all killed is no concern of the job
	}
	found := regexp.MustCompile(`(?m)^done steps=(\d+) .*\bsha256=([0-9a-f]{64})$`).FindAllStringSubmatch(first.out.String(), -1)
	if len(found) != 1 {
		t.Fatalf("%d results", len(found))
	}
	if steps := int64(number(found[0][1])); steps != j.spec.steps() {
		t.Errorf("%d steps, want %d", steps, j.spec.steps())
	}
	j.checkGone(t)
	return found[0][2]
}

// steps is the length of the job.
func (s spec) steps() int64 {
	if s.Steps > 0 {
		return s.Steps
	}
	return int64(s.Passes) * int64((s.Samples+globalBatch-1)/globalBatch)
}

// checkGone checks that no trace of the job is left on the host.
func (j *job) checkGone(t *testing.T) {
	t.Helper()
	j.ended = true
	j.poll(t)
	for _, p := range processes(t, j.name) {
		t.Errorf("peer %d still runs as process %d", p.index, p.pid)
	}
	if n := sockets(t, j.name); n != 0 {
		t.Errorf("%d control sockets are left", n)
	}
	left, err := filepath.Glob(filepath.Join(j.dir, "tmp", "*"))
	if left = append(left, segments(t)...); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// cleanUp ends what still runs, and if the test failed shows what there is to see.
func (j *job) cleanUp(t *testing.T) {
	left := processes(t, j.name)
	if t.Failed() && !j.ended {
		j.askForStacks(t, left)
	}
	for _, p := range left {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // an error means that it has ended
	}
	j.waitFor(func() bool { return !slices.ContainsFunc(left, func(p process) bool { return alive(p.pid) }) })
	for _, e := range j.elruns {
		_ = e.cmd.Process.Kill() // as above
		<-e.done
	}
	if t.Failed() {
		j.show(t)
	}
}

// askForStacks lets processes print the stacks of their goroutines.
func (j *job) askForStacks(t *testing.T, all []process) {
	for _, p := range all {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid)) // empty if it has just ended
		j.note("process %d: peer %d of elrun %d, %s", p.pid, p.index, p.parent, stat)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		_ = syscall.Kill(p.pid, syscall.SIGUSR2)
	}
	j.waitFor(func() bool {
		text := ""
		for _, e := range j.elruns {
			text += e.out.String()
		}
		return strings.Count(text, stacksEnd) >= len(all)
	})
}

// waitFor waits a little for a condition that may never come true.
func (j *job) waitFor(condition func() bool) {
	deadline := time.Now().Add(3 * time.Second)
	for !condition() && time.Now().Before(deadline) {
		<-time.After(10 * time.Millisecond)
	}
}

// show writes all that may help to find out what went wrong.
func (j *job) show(t *testing.T) {
	t.Helper()
	for _, e := range j.elruns {
		t.Logf("%v\nstandard output:\n%s", e.cmd.Args, tail(e.out.String(), 200_000))
		t.Logf("standard error:\n%s", tail(e.err.String(), 50_000))
		_ = e.read() // what is missing then is missing
	}
	t.Logf("what was done, with the events other than steps:\n%s", j.story())
	keep := option[string]("keep")
	for i, e := range j.elruns {
		b, err := os.ReadFile(e.path)
		t.Logf("end of event log %d (%d bytes, %v):\n%s", i, len(b), err, tail(string(b), 5000))
		if keep != "" && err == nil {
			err = os.WriteFile(filepath.Join(keep, fmt.Sprintf("%s-%d.jsonl", j.name, i)), b, 0o600)
		}
		if err != nil {
			t.Log(err)
		}
	}
}

// note remembers what the test does to the job.
func (j *job) note(format string, args ...any) {
	j.notes = append(j.notes, event.Event{Time: time.Now(), Body: note(fmt.Sprintf(format, args...))})
}

// note is an event of the test.
type note string

// Name implements event.Body.
func (note) Name() string { return "note" }

// story lists events of all logs but for steps and paths in the order of time, and
// between them the number of the last step.
func (j *job) story() string {
	all := append(j.events(), j.notes...)
	slices.SortStableFunc(all, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	var lines strings.Builder
	var step, told int64
	for _, e := range all {
		switch e.Body.(type) {
		case event.Step:
			step = max(step, e.Step)
			continue
		case event.Path:
			continue
		}
		if step != told {
			fmt.Fprintf(&lines, "step %d\n", step)
			told = step
		}
		fmt.Fprintf(&lines, "%s %s[%d] epoch %d %s %+v\n", e.Time.Local().Format("05.000"), e.Peer, e.Index, e.Epoch, e.Body.Name(), e.Body)
	}
	return tail(lines.String(), 60_000)
}

// tail returns the last n bytes of s, from the beginning of a line.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	_, s, _ = strings.Cut(s[len(s)-n:], "\n")
	return "...\n" + s
}
