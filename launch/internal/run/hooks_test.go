package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/spec"
)

// A command runs once for an event that two peers report, with the line of one of them on its standard input, and
// a command that fails is told once.
func TestRunHooks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	hooks := []spec.Hook{
		{Events: []string{"done"}, Command: fmt.Sprintf("{ echo $ELRUN_JOB; cat; } >> %s", out)},
		{Events: []string{"exit", "member"}, Command: "cat >/dev/null; echo so sorry >&2; exit 3"},
	}
	_, _, err := runShell(t, sayHello+sayDone+`abcd >&3`, spec.Options{Peers: 2, Job: "hooked", Output: spec.Output{Hooks: hooks}})
	text, e := os.ReadFile(out)
	if e != nil || !strings.HasPrefix(string(text), "hooked\n{") || !strings.Contains(string(text), `"event":"done"`) || strings.Count(string(text), "\n") != 2 {
		t.Errorf("the command got %q, %v", text, e)
	}
	if strings.Count(err, "--on ") != 1 || !strings.Contains(err, "exit status 3: so sorry") {
		t.Errorf("stderr %q", err)
	}
}

// A command that does not end is killed with its children at the end of the job.
func TestHooksFinish(t *testing.T) {
	dir := t.TempDir()
	o := &spec.Options{Output: spec.Output{Hooks: []spec.Hook{{Events: []string{"lost"}, Command: "cd " + dir + "; sh -c 'echo $$ > new; mv new pid; exec sleep 300' & sleep 300"}}}}
	h := (&hooks{say: t.Logf}).start(o)
	h.offer(event.Event{Body: event.Lost{Who: "a"}}, time.Now())
	for {
		if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
			break
		}
	}
	h.finish(0)
	text, _ := os.ReadFile(filepath.Join(dir, "pid"))
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	for alive(pid) { // until the kernel has ended it
	}
}

// What a command leaves behind ends with it.
func TestHookLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	said := make(chan []byte, 1)
	err := proc.RunCommand(t.Context(), nil, proc.Command{Script: "sleep 300 & echo $! > " + file + "; echo said >&2", Stderr: func(part []byte) {
		select {
		case said <- bytes.Clone(part):
		default:
		}
	}})
	if err != nil || string(<-said) != "said\n" {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	for alive(pid) { // until the kernel has ended it
	}
}

// Reports of several peers about the same event differ in their measurements only.
func TestSameEvent(t *testing.T) {
	a := event.Event{Epoch: 2, Peer: "x", Body: event.Lost{Who: "a", Cause: "exit", DetectMS: 3}}
	b := event.Event{Epoch: 2, Peer: "y", Index: 1, Body: event.Lost{Who: "a", Cause: "exit", DetectMS: 4}}
	c := event.Event{Epoch: 2, Peer: "y", Body: event.Lost{Who: "b", Cause: "exit", DetectMS: 3}}
	if sameEvent(a) != sameEvent(b) || sameEvent(a) == sameEvent(c) {
		t.Errorf("%s, %s, %s", sameEvent(a), sameEvent(b), sameEvent(c))
	}
	d, e := event.Event{Index: 0, Peer: "x", Body: event.Exit{PID: 1}}, event.Event{Index: 1, Peer: "y", Body: event.Exit{PID: 2}}
	if sameEvent(d) == sameEvent(e) {
		t.Errorf("%s for the ends of two processes", sameEvent(d))
	}
}
