package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// elrun stop ends peers as SIGTERM does. The status of the launcher is 0, whatever the statuses of the
// peers are.
func TestStop(t *testing.T) {
	for role, says := range map[string]string{
		"loop":   `error: elastic: next view after epoch \d+: no further view: left as asked`,
		"polite": "ended politely",
	} {
		t.Run(role, func(t *testing.T) {
			e := start(t, role, 3)
			e.Expect(t, "[0] sums", "[1] sums", "[2] sums")
			e.stop(t, "3")
			if status := e.Wait(t); status != 0 {
				t.Errorf("elrun ended with status %d", status)
			}
			for i := range 3 { // a peer may end an epoch later than the others
				said := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] %s`, i, says))
				process.Until(t, said.String(), func() bool { return said.MatchString(e.Out.String()) })
			}
			e.job.CheckGone(t)
		})
	}
}

// elrun stop asks the peers themselves, so it also works if their launcher hangs.
func TestStopWithoutLauncher(t *testing.T) {
	e := start(t, "polite", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	e.Signal(t, syscall.SIGSTOP)
	e.stop(t, "2")
	process.Until(t, "the end of all peers", func() bool { return len(e.peers(t)) == 0 })
	e.Signal(t, syscall.SIGCONT)
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

func TestStopDuringStart(t *testing.T) {
	e := start(t, "half", 2)
	e.Expect(t, "waiting", "[1] idle")
	process.Until(t, "a control socket", func() bool { return process.Sockets(t, e.job.Name) > 0 })
	if stdout, stderr, status := process.Command(t, "stop", e.job.Name); status != 0 || !strings.Contains(stdout, ": 1 peer was asked") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	// Peer 1 has not called Init, so only its launcher can end it.
	e.Expect(t, "was killed by signal 15")
	e.Signal(t, syscall.SIGTERM)
	if status := e.Wait(t); status != 143 {
		t.Errorf("elrun ended with status %d, want 143", status)
	}
}

// Peers that do not end within --grace are killed.
func TestGrace(t *testing.T) {
	e := start(t, "deaf", 2, "--grace", "10ms")
	e.Expect(t, "[0] sums", "[1] sums")
	e.Signal(t, syscall.SIGTERM)
	e.Expect(t, "peers still run 10ms after they were asked to end; killing them")
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

func TestStopOfNoJob(t *testing.T) {
	if stdout, stderr, status := process.Command(t, "stop", "no-such-job"); status != 1 || stdout != "" ||
		!strings.HasPrefix(stderr, "elrun: no such job: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// stop runs elrun stop for the job. All n peers must have joined.
func (e *elrun) stop(t *testing.T, n string) {
	t.Helper()
	stdout, stderr, status := process.Command(t, "stop", e.job.Name)
	want := regexp.MustCompile("^stopped job " + e.job.Name + ": " + n + ` peers were asked to end, and were gone [0-9.]+m?s later\n$`)
	if status != 0 || !want.MatchString(stdout) {
		t.Errorf("stop: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestDoctor(t *testing.T) {
	stdout, stderr, status := process.Command(t, "doctor")
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
