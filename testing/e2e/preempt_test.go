package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// When a machine is about to be preempted, its peers leave at a step boundary. The other peers
// report no loss, and no work is lost.
func TestPreemptNotice(t *testing.T) {
	e := start(t, "train", 2)
	e.expectSize(t, 0, 2)
	notice := filepath.Join(t.TempDir(), "notice")
	second := e.join(t, "train", 2, e.issue(t), "--preempt-notice", notice)
	for i := range 2 {
		second.expectSize(t, i, 4)
	}
	if err := os.WriteFile(notice, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := second.Wait(t); status != 143 {
		t.Errorf("status %d, want that of SIGTERM", status)
	}
	second.Expect(t, "elrun: notice of preemption ("+notice+"): asking 2 peers to leave\n")
	for i := range 2 {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] has left at step`, i)).MatchString(second.Out.String()) {
			t.Errorf("peer %d has not left at a step", i)
		}
	}
	e.expectSize(t, 0, 2)
	e.expectDone(t)
	if text := e.Err.String(); strings.Contains(text, "is lost") || strings.Count(text, "has left") == 0 {
		t.Errorf("output of the others:\n%s", text)
	}
}

// If no other elrun has peers of the job, the job ends as after SIGTERM. In this test a command
// gives the notice.
func TestPreemptNoticeAlone(t *testing.T) {
	notice := filepath.Join(t.TempDir(), "notice")
	if err := os.WriteFile(notice+".sh", []byte("#!/bin/sh\nwhile ! [ -e "+notice+" ]; do sleep 0.1; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	e := start(t, "train", 2, "--preempt-notice", notice+".sh")
	e.expectSize(t, 0, 2)
	if err := os.WriteFile(notice, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d, want that of SIGTERM", status)
	}
	e.Expect(t, "): asking 2 peers to leave\n")
	e.job.CheckGone(t)
}

func TestPreemptNoticeThatCannotBe(t *testing.T) {
	there := filepath.Join(t.TempDir(), "notice")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := process.Command(t, "-n", "1", "--preempt-notice", there, "true"); status != 2 || !strings.Contains(stderr, "exists already") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}
