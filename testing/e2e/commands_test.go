package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// The commands that show or change a job accept the beginning of its name. For a program that
// reports no steps, they show "-" as the step. The test accepts any peer after "waiting for",
// because on a busy host a peer may wait for another peer.
func TestNameByBeginning(t *testing.T) {
	e := start(t, "loop", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	short := e.job.Name[:len(e.job.Name)-2]
	stdout, stderr, status := process.Command(t, "status", "--peers", short)
	if status != 0 || !strings.HasPrefix(stdout, "job "+e.job.Name+"  epoch 1  step -  waiting for ") {
		t.Errorf("status: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	stdout, stderr, status = process.Command(t, "ps", short)
	if lines := strings.Split(stdout, "\n"); status != 0 || len(lines) != 3 ||
		!strings.HasPrefix(strings.Join(strings.Fields(lines[1]), " "), e.job.Name+" 2 1 - ") {
		t.Errorf("ps: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	stdout, stderr, status = process.Command(t, "stop", short)
	if status != 0 || !strings.HasPrefix(stdout, "stopped job "+e.job.Name+": 2 peers were asked to end, and were gone ") {
		t.Errorf("stop: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	e.Wait(t)
}

// Flags of scale may come between its arguments.
func TestScaleByBeginning(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	stdout, stderr, status := process.Command(t, "scale", e.job.Name[:len(e.job.Name)-2], "--elrun", strconv.Itoa(e.PID()), "2")
	if status != 0 || stdout != "1 local peer becomes 2: starting peer 1\n" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	e.expectSize(t, 0, 2)
	e.expectDone(t)
}

// A peer can join with a ticket from a file, so that no command line shows the ticket.
func TestTicketFromFile(t *testing.T) {
	e := start(t, "train", 1, "--state-rate", "100MB/s")
	e.expectSize(t, 0, 1)
	ticket := e.issue(t)
	name := filepath.Join(t.TempDir(), "ticket")
	if err := os.WriteFile(name, []byte(ticket+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := e.join(t, "train", 1, "@"+name, "--state-rate=50MB/s")
	e.expectSize(t, 0, 2)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), ticket) { // ReadFile fails for a process that has ended
			t.Errorf("%s shows the ticket", file)
		}
	}
	e.expectDone(t)
	if status := second.Wait(t); status != 0 {
		t.Errorf("the second elrun ended with status %d", status)
	}
}

// The doctor checks a ticket without joining, and reports that the ticket leads to the peers of its
// job.
func TestDoctorTicket(t *testing.T) {
	e := start(t, "loop", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	stdout, stderr, status := process.Command(t, "doctor", e.issue(t))
	if status != 0 || !strings.Contains(stdout, "ok    ticket: for job "+e.job.Name) || !strings.Contains(stdout, "lets in holders of a ticket") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
}
