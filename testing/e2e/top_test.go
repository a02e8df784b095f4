package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/testing/screen"
)

// top returns a command of a shell that shows a job.
func top(env, args string) string { return fmt.Sprintf("%s %s top %s", env, process.Elrun(), args) }

// elrun top shows a real job at a terminal, on one that cannot move its cursor, and without one, until the job ends.
func TestTop(t *testing.T) {
	e := start(t, "train", 3)
	e.expectRanks(t, 3)
	name := e.job.Name

	s := screen.New(t, 80, 24, top("", name))
	s.Until("- 3 peers by W-FOR")
	s.Until("goodput")
	s.Press("C-c")
	if status := s.Left(); status != 0 {
		t.Errorf("Ctrl-C: status %d", status)
	}

	s = screen.New(t, 80, 24, top("", name))
	s.Until("- 3 peers by W-FOR")
	process.Signal(t, s.PID(), syscall.SIGTERM)
	if status := s.Left(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("SIGTERM: status %d", status)
	}

	dumb, watched := screen.New(t, 80, 50, top("TERM=dumb", name)), screen.New(t, 80, 24, top("", name))
	for _, s := range []*screen.Screen{dumb, watched} {
		s.Until("- 3 peers by W-FOR")
	}
	if stdout, stderr, status := process.Command(t, "top", "--once", name); status != 0 || stderr != "" || strings.Count(stdout, "goodput") != 1 || strings.Contains(stdout, "\x1b") {
		t.Errorf("once: status %d, %s, %q", status, stderr, stdout)
	}
	stdout, stderr, status := process.Command(t, "top", "--once", "--json", name)
	var x timeline.Snapshot
	if err := json.Unmarshal([]byte(stdout), &x); err != nil || status != 0 || strings.Count(stdout, "\n") != 1 || x.Job.Job != name || len(x.Peers) != 3 {
		t.Errorf("JSON: status %d, %s, %v: %d peers", status, stderr, err, len(x.Peers))
	}

	if err := os.WriteFile(e.finish, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if status := e.Wait(t); status != 0 {
		t.Errorf("the job: status %d", status)
	}
	watched.Until("finished with status 0 after")
	watched.Press("q")
	if status := watched.Left(); status != 0 {
		t.Errorf("after the end: status %d", status)
	}
	if status := dumb.Left(); status != 0 || !strings.Contains(dumb.History(), "finished with status 0 after") {
		t.Errorf("on a dumb terminal: status %d:\n%s", status, dumb.History())
	}
	if _, stderr, status := process.Command(t, "top", name); status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "no such job") {
		t.Errorf("after the end: status %d, %q", status, stderr)
	}
}

// An elrun that is killed leaves no record of an end: top says in one line that nothing is known of the job any more.
func TestTopOfLostElrun(t *testing.T) {
	e := start(t, "train", 2)
	e.expectRanks(t, 2)
	s := screen.New(t, 80, 24, top("", e.job.Name))
	s.Until("- 2 peers by W-FOR")
	plain := screen.New(t, 200, 24, top("", "--json "+e.job.Name+" >/dev/null"))
	plain.PID()
	e.Signal(t, syscall.SIGKILL)
	s.Until("GONE")
	s.Press("q")
	if status := s.Left(); status != 0 {
		t.Errorf("status %d", status)
	}
	if status := plain.Left(); status != 1 || !strings.HasPrefix(plain.History(), "elrun: ") {
		t.Errorf("status %d:\n%s", status, plain.History())
	}
}

// On a terminal elrun draws the progress with a bar, the loss and the time left in one line, which fits. A dumb terminal gets lines.
func TestProgressLine(t *testing.T) {
	path, data := mnist(t)
	run := func(env string) string {
		return fmt.Sprintf("%s %s -n 2 --name %s --listen local %s --data %s --model softmax --steps 2000 --pace 300us", env, process.Elrun(), process.NewJob(t).Name, path, data)
	}
	s, dumb := screen.New(t, 100, 24, run("LC_ALL=C.UTF-8")), screen.New(t, 100, 24, run("TERM=dumb"))
	shows := func(want string) {
		t.Helper()
		pattern := regexp.MustCompile(`(?m)` + want + `$`)
		process.Until(t, want, func() bool { return pattern.MatchString(s.Text()) })
	}
	const bar, loss, end = `^\[=*-*\]  step \d+/2000  loss [0-9.]+`, ` [▁-█]+`, `  \d+ samples/s  .* left`
	shows(bar + loss + end)
	s.Resize(30, 24)
	shows(`^step \d+/2000  .* left`)
	dumb.Until("elrun: step ")
	for _, at := range []*screen.Screen{s, dumb} {
		process.Signal(t, at.PID(), syscall.SIGTERM)
		if status := at.Left(); status != 128+int(syscall.SIGTERM) {
			t.Errorf("status %d", status)
		}
	}
	if strings.Contains(dumb.History(), "[=") {
		t.Errorf("a dumb terminal shows\n%s", dumb.History())
	}
}
