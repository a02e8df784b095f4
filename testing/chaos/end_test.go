package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// finish waits for the end of the job. It checks that the first elrun reports success, and that no process remains. It returns
// the SHA-256 of the weights.
func (j *job) finish(t *testing.T) string {
	t.Helper()
	first := j.elruns[0]
	if status := first.status(t); status != 0 {
		t.Errorf("elrun ended with status %d", status)
	}
	for _, e := range j.elruns[1:] {
		e.status(t) // any status, because all peers of this elrun may have been killed
	}
	found := regexp.MustCompile(`(?m)^done steps=(\d+) .*\bsha256=([0-9a-f]{64})$`).FindAllStringSubmatch(first.Out.String(), -1)
	if len(found) != 1 {
		t.Fatalf("%d results", len(found))
	}
	if steps := int64(number(found[0][1])); steps != j.spec.steps() {
		t.Errorf("%d steps, want %d", steps, j.spec.steps())
	}
	j.checkGone(t)
	return found[0][2]
}

// steps returns the length of the job in steps.
func (s spec) steps() int64 {
	if s.Steps > 0 {
		return s.Steps
	}
	return int64(s.Passes) * int64((s.Samples+s.batch()-1)/s.batch())
}

// checkGone checks that no process, temporary file or shared memory of the job is left on the host.
func (j *job) checkGone(t *testing.T) {
	t.Helper()
	j.poll(t)
	j.CheckGone(t)
	left, err := filepath.Glob(filepath.Join(j.dir, "tmp", "*"))
	if left = append(left, segments(t)...); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// show logs the actions of a test that has failed. It copies the event logs to the folder of the flag -keep.
func (j *job) show(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	j.poll(t)
	t.Logf("actions of the test, and events other than steps:\n%s", j.story())
	keep := option[string]("keep")
	for i, e := range j.elruns {
		b, err := os.ReadFile(e.Path)
		if keep != "" && err == nil {
			err = os.WriteFile(filepath.Join(keep, fmt.Sprintf("%s-%d.jsonl", j.Name, i)), b, 0o600)
		}
		if err != nil {
			t.Log(err)
		}
	}
}

// note records an action of the test on the job.
func (j *job) note(format string, args ...any) {
	j.notes = append(j.notes, event.Event{Time: time.Now(), Body: note(fmt.Sprintf(format, args...))})
}

// note is the body of an event for an action of the test.
type note string

// Name implements event.Body.
func (note) Name() string { return "note" }

// story lists the events of all logs in the order of time, without steps and paths. Between the events it gives the number of the
// last step.
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
	return process.Tail(lines.String(), 60_000)
}
