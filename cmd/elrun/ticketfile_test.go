package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/scheduler"
)

// silent returns a terminal that discards output.
func silent(t *testing.T) *terminal {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	return &terminal{stdout: null, stderr: null, signals: make(chan os.Signal)}
}

// The file is private and has the latest text. A file of another user is refused.
func TestTicketFile(t *testing.T) {
	dir := t.TempDir()
	r := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Tasks: 2})
	want := func(text string) {
		t.Helper()
		if got, err := r.read(); err != nil || got != text {
			t.Errorf("read %q, error %v, want %q", got, err, text)
		}
	}
	want("")
	for _, text := range []string{"wait", "elrun1.x", "ended 3"} {
		if err := r.write(text); err != nil {
			t.Fatal(err)
		}
		want(text)
	}
	if status, ok := r.ended(); !ok || status != 3 {
		t.Errorf("ended with %d, %v", status, ok)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("files %v are left, error %v", left, err)
	}
	if err := os.Chmod(r.path, 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := r.read(); err == nil || !strings.Contains(err.Error(), "--rendezvous") {
		t.Errorf("others may read it: %q, error %v", text, err)
	}
	r.removeOldFiles(time.Now())
	if _, err := os.Lstat(r.path); err != nil {
		t.Errorf("the file of a job that may run was removed: %v", err)
	}
	r.removeOldFiles(time.Now().Add(2 * ticketFileLife))
	want("")
	if err := os.Symlink(os.DevNull, r.path); err != nil {
		t.Fatal(err)
	}
	if text, err := r.read(); err == nil {
		t.Errorf("a link is read: %q", text)
	}
}

// A task waits for the ticket. A late task returns the outcome of the job. If the job has finished
// before a task could join it, the task has not failed.
func TestTicketFileJoin(t *testing.T) {
	for _, c := range []struct {
		says  string
		ends  error  // outcome of the task's peers
		after string // text in the file afterwards
		runs  bool
		want  int
	}{
		{"elrun1.x", nil, "elrun1.x", true, 0},
		{"elrun1.x", exitStatus(143), "ended 0", true, 143},
		{"elrun1.x", exitStatus(1), "elrun1.x", true, 1},
		{"elrun1.x", exitStatus(1), "ended 1", true, 1},
		{"elrun1.x", exitStatus(1), "ended 0", true, 0},
		{"ended 0", nil, "ended 0", false, 0},
		{"ended 75", nil, "ended 75", false, 75},
		{"ended x", nil, "ended x", false, 1},
		{"", nil, "", false, 1}, // no ticket before the time limit
		{"wait", nil, "", false, 1},
	} {
		dir, term := t.TempDir(), silent(t)
		synctest.Test(t, func(t *testing.T) {
			term.signals = make(chan os.Signal) // must belong to the synctest bubble
			r := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Rank: 1, Tasks: 2})
			writes := time.AfterFunc(time.Minute, func() {
				if c.says != "" {
					_ = r.write(c.says)
				}
			})
			defer writes.Stop()
			ran := false
			err := r.join(t.Context(), term, time.Hour, func(ticket string) error {
				ran = true
				if ticket != c.says {
					t.Errorf("the peers join with the ticket %q, want %q", ticket, c.says)
				}
				_ = r.write(c.after)
				return c.ends
			})
			if got := endStatus(err); got != c.want || ran != c.runs {
				t.Errorf("%q, then %q: status %d (%v), ran %v", c.says, c.after, got, err, ran)
			}
		})
	}
}

// Task 0 writes the outcome of its launcher to the file, even if the launcher could not start.
func TestTicketFileForm(t *testing.T) {
	dir := t.TempDir()
	r := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Tasks: 2})
	name := ""
	err := r.startJob(t.Context(), silent(t), jobFlags{}, func(job string) error {
		name = job
		return exitStatus(statusUsage)
	})
	if status, ok := r.ended(); endStatus(err) != statusUsage || status != statusUsage || !ok || name != "slurm-lab-1-0-0" {
		t.Errorf("error %v, the file says %d %v, job %q", err, status, ok, name)
	}
	r = newTicketFile(filepath.Join(dir, "missing"), r.task)
	if err := r.startJob(t.Context(), silent(t), jobFlags{}, nil); err == nil || !strings.Contains(err.Error(), "--rendezvous") {
		t.Errorf("error %v without a folder", err)
	}
}

// A signal ends the wait for the ticket.
func TestTicketFileInterrupted(t *testing.T) {
	r := newTicketFile(t.TempDir(), &scheduler.Task{Step: "lab-1.0.0", Rank: 1, Tasks: 2})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(exitStatus(143))
	if err := r.join(ctx, silent(t), time.Hour, nil); endStatus(err) != 143 {
		t.Errorf("error %v", err)
	}
}
