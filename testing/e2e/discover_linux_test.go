package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestTicketOutlivesItsPeers runs in a network namespace of its own, so that its multicast messages
// reach no other job. The members that a ticket names leave. A newcomer with the ticket finds a
// later member by multicast, because all peers have --lan.
func TestTicketOutlivesItsPeers(t *testing.T) {
	if os.Getenv(listenVariable) != "" {
		outliveTicket(t)
		return
	}
	for _, tool := range []string{"ip", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	const setup = "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 192.0.2.1/24 dev v0 && " +
		"ip link set v0 up && ip link set v1 up && "
	if out, err := isolated(t, setup+"true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v: %s", err, out)
	}
	c := isolated(t, setup+`exec "$0" -test.run '^TestTicketOutlivesItsPeers$' -test.v -test.timeout 5m`, os.Args[0])
	c.Env = append(os.Environ(), listenVariable+"=auto")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// isolated returns a command that runs a shell script in a network namespace of its own.
func isolated(t *testing.T, script string, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return c
}

func outliveTicket(t *testing.T) {
	e := start(t, "train", 2, "--lan")
	e.expectSize(t, 0, 2)
	line := e.issue(t)
	second := e.join(t, "train", 1, line, "--lan")
	second.expectSize(t, 0, 3)
	e.Signal(t, syscall.SIGTERM)
	second.expectSize(t, 0, 1)
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
	third := e.join(t, "train", 1, line, "--lan")
	third.expectSize(t, 0, 2)
	second.expectDone(t)
	third.expectDone(t)
}
