package main

import (
	"context"
	"errors"
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
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"wait", "elrun1.x", "ended 3"} {
		if err := r.set(state); err != nil {
			t.Fatal(err)
		}
		want(r.job + " " + state)
	}
	if status, ok := r.ended(r.job); !ok || status != 3 {
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
		t.Setenv("XDG_STATE_HOME", dir)
		synctest.Test(t, func(t *testing.T) {
			term.signals = make(chan os.Signal) // must belong to the synctest bubble
			r := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Rank: 1, Tasks: 2})
			writes := time.AfterFunc(time.Minute, func() {
				if c.says != "" {
					_ = r.write("A " + c.says + "\n")
				}
			})
			defer writes.Stop()
			ran := false
			err := r.join(t.Context(), term, time.Hour, func(ticket string) error {
				ran = true
				if ticket != c.says {
					t.Errorf("the peers join with the ticket %q, want %q", ticket, c.says)
				}
				_ = r.write("A " + c.after + "\nB wait\n")
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
	if status, ok := r.ended(r.job); endStatus(err) != statusUsage || status != statusUsage || !ok || name != "slurm-lab-1-0-0" {
		t.Errorf("error %v, the file says %d %v, job %q", err, status, ok, name)
	}
	r = newTicketFile(filepath.Join(dir, "missing"), r.task)
	if err := r.startJob(t.Context(), silent(t), jobFlags{}, nil); err == nil || !strings.Contains(err.Error(), "--rendezvous") {
		t.Errorf("error %v without a folder", err)
	}
}

// A task takes part in the jobs of its step in their order: the file may still have the ticket or the
// end of its last job, or two more jobs. A late task learns how its job has ended, although the next
// one runs. A task without a record takes the latest job.
func TestTicketFileJobs(t *testing.T) {
	dir, term := t.TempDir(), silent(t)
	t.Setenv("XDG_STATE_HOME", dir)
	first := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Tasks: 3})
	begin := func(state string) {
		t.Helper()
		if err := errors.Join(first.begin(), first.set(state)); err != nil {
			t.Fatal(err)
		}
	}
	// take returns the ticket that a task gets, "" for none, and its status.
	take := func(rank int) (ticket string, status int) {
		r := newTicketFile(dir, &scheduler.Task{Step: "lab-1.0.0", Rank: rank, Tasks: 3})
		ctx, cancel := context.WithCancelCause(t.Context())
		if _, ok, _ := r.next(newStepRecord(r.task)); !ok {
			cancel(exitStatus(99)) // it would wait
		}
		defer cancel(nil)
		status = endStatus(r.join(ctx, term, time.Hour, func(text string) error { ticket = text; return nil }))
		return ticket, status
	}
	want := func(rank int, ticket string, status int) {
		t.Helper()
		if got, s := take(rank); got != ticket || s != status {
			t.Errorf("task %d: ticket %q, status %d, want %q, %d", rank, got, s, ticket, status)
		}
	}
	begin("elrun1.a")
	want(1, "elrun1.a", 0)
	want(1, "", 99) // task 0 has not ended yet
	if err := first.set("ended 0"); err != nil {
		t.Fatal(err)
	}
	want(1, "", 99) // task 0 has not begun the next job
	begin("elrun1.b")
	want(1, "elrun1.b", 0)
	want(2, "", 0)         // late for the first job
	want(2, "elrun1.b", 0) // but not for the second one
	begin("elrun1.c")      // the launcher of the second one was killed
	want(1, "elrun1.c", 0)
	t.Setenv("XDG_STATE_HOME", os.DevNull)
	want(2, "elrun1.c", 0)
	for range ticketFileJobs {
		begin("ended 0")
	}
	if all, err := first.jobs(); err != nil || len(all) != ticketFileJobs {
		t.Errorf("%d jobs, %v", len(all), err)
	}
}

// Jobs of one step have different names: peers of the job before may still run on this host.
func TestTicketFileNames(t *testing.T) {
	r := newTicketFile(t.TempDir(), &scheduler.Task{Step: "lab-1.0.0", Tasks: 2})
	for _, want := range []string{"slurm-lab-1-0-0", "slurm-lab-1-0-0-2", "slurm-lab-1-0-0-3"} {
		err := r.startJob(t.Context(), silent(t), jobFlags{}, func(job string) error {
			if job != want {
				t.Errorf("job %s, want %s", job, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Records of steps are removed when they are old.
func TestStepRecord(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	s := newStepRecord(&scheduler.Task{Step: "lab-1.0.0", Rank: 1})
	if id, known := s.last(); id != "" || !known {
		t.Errorf("got %q, %v", id, known)
	}
	if err := s.set("A"); err != nil {
		t.Fatal(err)
	}
	s.removeOld(time.Now())
	if id, _ := s.last(); id != "A" {
		t.Errorf("got %q", id)
	}
	s.removeOld(time.Now().Add(2 * ticketFileLife))
	if id, _ := s.last(); id != "" {
		t.Errorf("got %q", id)
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
