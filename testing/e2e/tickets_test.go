package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/transport/ticket"
)

// With elrun ticket --follow FILE, a ticket is in FILE while the job runs. Only the user who runs
// elrun can read the file, and a peer can join with the ticket.
func TestFollowedTicket(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	file := filepath.Join(t.TempDir(), "ticket")
	follow := e.job.Start(t, exec.Command(process.Elrun(), "ticket", e.job.Name, "--valid", "1h", "--follow", file))
	process.Until(t, "the ticket", func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		_, err = ticket.Parse(string(b))
		return err == nil
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	second := e.join(t, "train", 1, "@"+file)
	second.expectSize(t, 0, 2)
	e.expectDone(t)
	if status := follow.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A peer that no member admits ends. Its error lists each address that it tried, and names a
// remedy.
func TestJoinTimeout(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	k, err := ticket.Parse(e.issue(t))
	if err != nil {
		t.Fatal(err)
	}
	k.Addrs = []string{"/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2"}
	second := e.join(t, "train", 1, k.String(), "--join-timeout", "1s")
	if status := second.Wait(t); status != 1 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"no member has let this peer in for 1s", "tried 127.0.0.1:1: connection refused", "tried 127.0.0.1:2: connection refused", "ask for a new ticket"} {
		if !strings.Contains(second.Err.String(), want) {
			t.Errorf("not printed: %s", want)
		}
	}
	e.expectDone(t)
}
