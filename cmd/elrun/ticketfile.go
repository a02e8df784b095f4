package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/internal/scheduler"
	"github.com/elrun/elrun/launch"
)

// ticketFile is the rendezvous of the tasks of a Slurm step: a file in a folder that their hosts
// share. Only its user may read it. The task of rank 0 writes it:
//
//	a ticket     after the start of the job, for the other tasks to join
//	ended STATUS after the end of its launcher, for late tasks
//
// The file stays after the end, without secrets, and a later job in the folder deletes it.
type ticketFile struct {
	path string          // the same path at all tasks of the step
	task *scheduler.Task // the task of this launcher
}

const (
	ticketFilePrefix = ".elrun-" // prefix of the file's name; the ID of the step follows
	taskEnded        = "ended "  // prefix of the text after the end of task 0's launcher; the exit status follows
	// ticketFilePeriod is the period at which tasks poll the file, or task 0 polls its job for a
	// ticket. Network file systems send no notice of changes on other hosts.
	ticketFilePeriod = 100 * time.Millisecond
	// ticketFileNotice is the time after which a task that waits for the ticket prints a message.
	ticketFileNotice = 10 * time.Second
	// taskTicket is the validity of the ticket; tasks use it as soon as they read it.
	taskTicket = time.Hour
	// ticketFileLife is how long the file of an ended job is kept at least, for tasks that start
	// late.
	ticketFileLife = 24 * time.Hour
)

// newTicketFile returns the rendezvous of a task in the folder dir; "" is the working folder.
func newTicketFile(dir string, task *scheduler.Task) *ticketFile {
	return &ticketFile{filepath.Join(dir, ticketFilePrefix+task.Step), task}
}

// startJob starts and runs the job that the other tasks join, with a name from the flags or from
// the step.
func (r *ticketFile) startJob(ctx context.Context, t *terminal, f jobFlags, run func(job string) error) error {
	job := f.Name
	if job == "" {
		// Names of jobs have no dots and underscores, unlike the IDs of steps.
		job = "slurm-" + strings.Map(func(c rune) rune {
			if c == '.' || c == '_' {
				return '-'
			}
			return c
		}, r.task.Step)
	}
	r.removeOldFiles(time.Now())
	// Overwrite a file of an earlier job, and fail early if the folder is not writable.
	if err := r.write("wait"); err != nil {
		return fmt.Errorf("rendezvous of the tasks: %w; --rendezvous DIR names a folder that all hosts share", err)
	}
	fmt.Fprintf(t.stderr, "elrun: Slurm runs %d tasks: this one starts the job, the others join it by the ticket in %s\n", r.task.Tasks, printable.Line(r.path))
	// The invitation runs beside the job, because a ticket exists only when the first peer is a
	// member.
	inviting, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		if err := r.invite(inviting, job); err != nil && inviting.Err() == nil {
			fmt.Fprintf(t.stderr, "elrun: the other tasks cannot join: %s\n", printable.Line(err.Error()))
		}
	})
	err := run(job)
	cancel()
	work.Wait()
	if wrote := r.write(taskEnded + strconv.Itoa(endStatus(err))); wrote != nil {
		fmt.Fprintf(t.stderr, "elrun: %s\n", printable.Line(wrote.Error()))
	}
	return err
}

// invite writes the job's ticket as soon as the job can make one.
func (r *ticketFile) invite(ctx context.Context, name string) error {
	for {
		// An error means that the job is still starting, so it is not reported. The loop ends with
		// ctx.
		job, err := launch.Find(ctx, name)
		if err == nil {
			var ticket launch.Ticket
			if ticket, err = job.Ticket(ctx, taskTicket); err == nil {
				return r.write(ticket.Text)
			}
		}
		if err := pause.For(ctx, ticketFilePeriod); err != nil {
			return err
		}
	}
}

// join waits for the ticket, for at most patience, and calls run with it. If the job has ended with
// success before this task could join, the task has not failed.
func (r *ticketFile) join(ctx context.Context, t *terminal, patience time.Duration, run func(ticket string) error) error {
	ticket, err := r.waitTicket(ctx, t, patience)
	if err != nil || ticket == "" {
		return err
	}
	err = run(ticket)
	// A success or a specific status, such as the status of a lost quorum, is returned unchanged.
	if status := endStatus(err); status != statusFailed {
		return err
	}
	if ended, ok := r.ended(); ok && ended == 0 {
		fmt.Fprintf(t.stderr, "elrun: task %d: the job has finished without these peers\n", r.task.Rank)
		return nil
	}
	return err
}

// waitTicket waits for the ticket and returns it. If the job has ended, the text is "" and the
// error is the outcome of the task.
func (r *ticketFile) waitTicket(ctx context.Context, t *terminal, patience time.Duration) (string, error) {
	ctx, release := t.interruptible(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("task %d has waited %v for task 0 to write %s: %w", r.task.Rank, patience, r.path, errShared))
	defer cancel()
	told := false
	for begun := time.Now(); ; {
		text, err := r.read()
		switch status, ended := strings.CutPrefix(text, taskEnded); {
		case err != nil:
			return "", err
		case ended:
			// The job has ended before this task began to wait.
			return "", r.lateOutcome(t, status)
		case isTicket(text):
			return text, nil
		}
		if !told && time.Since(begun) > ticketFileNotice {
			told = true
			fmt.Fprintf(t.stderr, "elrun: task %d waits for task 0 to write %s: %v\n", r.task.Rank, printable.Line(r.path), errShared)
		}
		if err := pause.For(ctx, ticketFilePeriod); err != nil {
			return "", err
		}
	}
}

// errShared is advice for a missing ticket file: it may be on another host.
var errShared = errors.New("if the hosts do not share this folder, name one by --rendezvous DIR")

// lateOutcome returns the outcome of a task that starts after the end of the job: success if task 0
// succeeded, and otherwise the status of task 0.
func (r *ticketFile) lateOutcome(t *terminal, status string) error {
	fmt.Fprintf(t.stderr, "elrun: task %d: the job had ended before these peers were started (task 0: status %s)\n", r.task.Rank, printable.Line(status))
	if n, err := strconv.Atoi(status); err != nil || n != 0 {
		return exitStatus(max(n, statusFailed))
	}
	return nil
}

// ended returns the exit status of task 0's launcher; ok is false if it has not ended.
func (r *ticketFile) ended() (status int, ok bool) {
	text, err := r.read()
	if err != nil {
		return 0, false
	}
	word, ok := strings.CutPrefix(text, taskEnded)
	// A text without a number does not mean that the task has ended: another program may have
	// written it.
	status, err = strconv.Atoi(word)
	return status, ok && err == nil
}

// isTicket reports whether a text has the form of a ticket.
func isTicket(text string) bool {
	form, _, dotted := strings.Cut(text, ".")
	return dotted && isTicketForm(form)
}

// write replaces the file atomically: readers see either the old text or the new text. Only the
// user may read it.
func (r *ticketFile) write(text string) error {
	f, err := os.CreateTemp(filepath.Dir(r.path), filepath.Base(r.path)+".new") // with private.File
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text+"\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// read returns the text in the file, "" if there is no file. It is an error if the file belongs
// to another user or if others have access to it.
func (r *ticketFile) read() (string, error) {
	// Network file systems cache for a while that a file is missing. Opening the folder makes the
	// file system look for the file again.
	if dir, err := os.Open(filepath.Dir(r.path)); err == nil {
		_ = dir.Close()
	}
	// O_NOFOLLOW refuses a symbolic link, which another user could have put there to make this
	// task read another file.
	f, err := os.OpenFile(r.path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("rendezvous of the tasks: %w", err)
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return "", fmt.Errorf("rendezvous of the tasks: %s: %w", r.path, err)
	}
	b, err := readLimited(f)
	if err != nil {
		return "", fmt.Errorf("rendezvous of the tasks: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// checkPrivate returns an error unless f is a regular file of this user, without access for
// others. A file that others can write could lead the peers into another user's job.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&^private.File != 0 || ok && int(owner.Uid) != os.Getuid() {
		return errors.New("not a private file of this user: remove it, or name another folder by --rendezvous DIR")
	}
	return nil
}

// removeOldFiles deletes the old files of earlier jobs in the folder.
func (r *ticketFile) removeOldFiles(now time.Time) {
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(r.path), ticketFilePrefix+"*")) // the only possible error is a malformed pattern, from brackets in the folder's name
	for _, path := range old {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > ticketFileLife {
			_ = os.Remove(path) // fails for another user's file, which stays
		}
	}
}

// endStatus returns the exit status for the outcome of a job. Tasks that start late end with the
// same status.
func endStatus(err error) int {
	var s exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		return int(s)
	}
	return statusFailed
}
