package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// elrun join --forever tries again until the file has a valid ticket, and after the job waits for
// the next job. A signal ends this wait.
func TestJoinForever(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	file := filepath.Join(t.TempDir(), "ticket")
	if err := os.WriteFile(file, []byte("not there yet"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := e.join(t, "train", 1, "@"+file, "--forever")
	second.Expect(t, "bad ticket", "tries again in 5s")
	if err := os.WriteFile(file, []byte(e.issue(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	e.expectSize(t, 0, 2)
	e.expectDone(t)
	second.Expect(t, "done steps=", "tries again in 5s")
	second.Signal(t, syscall.SIGTERM)
	if status := second.Wait(t); status != 143 {
		t.Errorf("status %d", status)
	}
}
