package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// longestLine is the maximum length of a line for users, in bytes.
const longestLine = 200

// elrun prints only short lines about a job of 32 peers in which peers join, die alone, die at the
// same time and leave.
func TestLinesOfMany(t *testing.T) {
	const first, late = 24, 8
	e := start(t, "train", first)
	e.expectSize(t, 0, first)
	second := e.join(t, "train", late, e.issue(t))
	e.expectSize(t, 0, first+late)
	second.expectSize(t, 0, first+late)
	for _, flags := range [][]string{nil, {"--peers"}, {"--paths"}} {
		stdout, stderr, status := process.Command(t, append([]string{"status", e.job.Name}, flags...)...)
		if status != 0 {
			t.Errorf("status %v: status %d: %s", flags, status, stderr)
		}
		checkLines(t, stdout)
	}
	e.hit(t, syscall.SIGKILL, 3)
	e.expectSize(t, 0, first+late-1)
	e.hit(t, syscall.SIGTERM, 4)
	e.expectSize(t, 0, first+late-2)
	second.hit(t, syscall.SIGKILL, 1, 2, 3, 5, 6, 7)
	e.expectSize(t, 0, first+late-8)
	e.expectDone(t)
	second.Wait(t)
	for _, p := range []*elrun{e, second} {
		checkLines(t, p.Err.String())
	}
}

// checkLines checks that each line has at most longestLine bytes.
func checkLines(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if len(line) > longestLine+1 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
}
