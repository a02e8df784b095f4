package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Peers end as SIGTERM ends them, and elrun with the status that theirs give.
func TestStop(t *testing.T) {
	for role, c := range map[string]struct {
		status int
		says   string
	}{
		"loop":   {1, `error: elastic: next view after epoch \d+: no further view: left`},
		"polite": {0, "ended politely"},
	} {
		t.Run(role, func(t *testing.T) {
			e := start(t, role, 3)
			e.expect(t, "[0] sums", "[1] sums", "[2] sums")
			e.stop(t, "3")
			if status := e.wait(t); status != c.status {
				t.Errorf("elrun ended with status %d, want %d", status, c.status)
			}
			for i := range 3 { // one may hear of it an epoch later than others
				said := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] %s`, i, c.says))
				until(t, said.String(), func() bool { return said.MatchString(e.out.String()) })
			}
			e.expectNothingLeft(t)
		})
	}
}

// It is the peers that are asked: their launcher may be stuck.
func TestStopWithoutLauncher(t *testing.T) {
	e := start(t, "polite", 2)
	e.expect(t, "[0] sums", "[1] sums")
	e.signal(t, syscall.SIGSTOP)
	e.stop(t, "2")
	until(t, "the end of all peers", func() bool { return len(e.peers(t)) == 0 })
	e.signal(t, syscall.SIGCONT)
	if status := e.wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	e.expectNothingLeft(t)
}

func TestStopDuringStart(t *testing.T) {
	e := start(t, "half", 2)
	e.expect(t, "waiting", "[1] idle")
	until(t, "a control socket", func() bool { return e.sockets(t) > 0 })
	if stdout, stderr, status := elrunCommand(t, "stop", e.job); status != 0 || !strings.Contains(stdout, ": 1 peer was asked") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	// Peer 1 has not called Init, so nobody but its launcher can end it.
	e.expect(t, "was killed by signal 15")
	e.signal(t, syscall.SIGTERM)
	if status := e.wait(t); status != 143 {
		t.Errorf("elrun ended with status %d, want 143", status)
	}
}

func TestStopOfNoJob(t *testing.T) {
	if stdout, stderr, status := elrunCommand(t, "stop", "no-such-job"); status != 1 || stdout != "" ||
		!strings.HasPrefix(stderr, "elrun: no such job: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// stop runs elrun stop for the job, all n of whose peers have joined.
func (e *elrun) stop(t *testing.T, n string) {
	t.Helper()
	stdout, stderr, status := elrunCommand(t, "stop", e.job)
	want := regexp.MustCompile("^stopped job " + e.job + ": " + n + ` peers were asked to end, and were gone [0-9.]+m?s later\n$`)
	if status != 0 || !want.MatchString(stdout) {
		t.Errorf("stop: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// expectNothingLeft looks for processes and sockets of a job that has ended.
func (e *elrun) expectNothingLeft(t *testing.T) {
	t.Helper()
	if p, s := e.peers(t), e.sockets(t); len(p) != 0 || s != 0 {
		t.Errorf("processes %v and %d sockets are left", p, s)
	}
}

func TestDoctor(t *testing.T) {
	stdout, stderr, status := elrunCommand(t, "doctor")
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	form := regexp.MustCompile(`^(ok  |warn)  [\w ]+: .+\n$`)
	for line := range strings.Lines(stdout) {
		if !form.MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	for _, name := range []string{"cores", "network", "control sockets", "libp2p over TCP and TLS", "libp2p over QUIC"} {
		if !strings.Contains(stdout, "  "+name+": ") {
			t.Errorf("no %s in:\n%s", name, stdout)
		}
	}
}
