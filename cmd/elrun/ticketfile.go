package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
// share. Only its user may read it. The task of rank 0 writes it. Each task may run elrun several
// times, one after the other: the file has a line for each job of the step, in their order.
//
//	ID wait          before the first peer of the job is a member
//	ID TICKET        then, for the other tasks to join
//	ID ended STATUS  after the end of the launcher of task 0, for late tasks
//
// A task takes part in the jobs in this order. It remembers the last one (stepRecord), because it may
// read the file before task 0 has written the end of that job, or the beginning of the next one.
//
// The file stays after the end, without secrets, and a later job in the folder deletes it.
type ticketFile struct {
	path string          // the same path at all tasks of the step
	task *scheduler.Task // the task of this launcher
	past []stepJob       // at task 0: the jobs before its own
	job  string          // at task 0: the ID of its job
}

// stepJob is a job of a step: a line of the file.
type stepJob struct {
	id    string
	state string // waits, a ticket, or taskEnded and a status
}

const (
	ticketFilePrefix = ".elrun-" // prefix of the file's name; the ID of the step follows
	waits            = "wait"    // state of a job without a ticket
	taskEnded        = "ended "  // prefix of the state after the end of task 0's launcher; the exit status follows
	// ticketFileJobs is the number of jobs of a step that the file has, the latest ones. It bounds the
	// file, which has at most one ticket.
	ticketFileJobs = 100
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
	return &ticketFile{path: filepath.Join(dir, ticketFilePrefix+task.Step), task: task}
}

// begin adds a job to the file. Jobs before it have ended: task 0 runs one after the other.
func (t *ticketFile) begin() error {
	past, err := t.jobs()
	if err != nil {
		return err
	}
	for i := range past {
		if !strings.HasPrefix(past[i].state, taskEnded) { // its launcher was killed
			past[i].state = taskEnded + strconv.Itoa(statusFailed)
		}
	}
	t.past, t.job = past[max(0, len(past)+1-ticketFileJobs):], rand.Text()
	return t.set(waits)
}

// set writes the state of the job of task 0.
func (t *ticketFile) set(state string) error {
	var text strings.Builder
	for _, j := range append(slices.Clone(t.past), stepJob{t.job, state}) {
		fmt.Fprintf(&text, "%s %s\n", j.id, j.state)
	}
	return t.write(text.String())
}

// jobs returns the jobs in the file; none if there is no file. Lines of another form are left out.
func (t *ticketFile) jobs() (all []stepJob, err error) {
	text, err := t.read()
	for line := range strings.Lines(text) {
		if id, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, stepJob{id, state})
		}
	}
	return all, err
}

// next returns the job after the last one of a task: the first one if the task was in none. If the
// last one is not known it is the latest. ok is false if there is none yet.
func (t *ticketFile) next(record stepRecord) (j stepJob, ok bool, err error) {
	all, err := t.jobs()
	last, known := record.last()
	i := slices.IndexFunc(all, func(j stepJob) bool { return j.id == last }) + 1
	if !known {
		i = max(0, len(all)-1)
	}
	if err != nil || i >= len(all) {
		return stepJob{}, false, err
	}
	return all[i], true, nil
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
	// Fail early if the folder is not writable.
	if err := r.begin(); err != nil {
		return fmt.Errorf("rendezvous of the tasks: %w; --rendezvous DIR names a folder that all hosts share", err)
	}
	// Other tasks on this host may still be in the job before.
	if n := len(r.past); n > 0 && f.Name == "" {
		job = fmt.Sprintf("%s-%d", job, n+1)
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
	if wrote := r.set(taskEnded + strconv.Itoa(endStatus(err))); wrote != nil {
		fmt.Fprintf(t.stderr, "elrun: %s\n", printable.Line(wrote.Error()))
	}
	return err
}

// invite writes the job's ticket as soon as the job can make one.
func (t *ticketFile) invite(ctx context.Context, name string) error {
	for {
		// An error means that the job is still starting, so it is not reported. The loop ends with
		// ctx.
		job, err := launch.Find(ctx, name)
		if err == nil {
			var ticket launch.Ticket
			if ticket, err = job.Ticket(ctx, taskTicket); err == nil {
				return t.set(ticket.Text)
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
	record := newStepRecord(r.task)
	j, err := r.waitTicket(ctx, t, patience, record)
	if err != nil {
		return err
	}
	// This task is done with the job, whatever the outcome is: its next elrun takes part in the next
	// job.
	defer func() {
		if err := record.set(j.id); err != nil {
			fmt.Fprintf(t.stderr, "elrun: task %d: the next elrun of this step may take this job for its own: %s\n", r.task.Rank, printable.Line(err.Error()))
		}
	}()
	if status, ended := strings.CutPrefix(j.state, taskEnded); ended {
		return r.lateOutcome(t, status) // before this task began to wait
	}
	err = run(j.state)
	// A success or a specific status, such as the status of a lost quorum, is returned unchanged.
	if status := endStatus(err); status != statusFailed {
		return err
	}
	if ended, ok := r.ended(j.id); ok && ended == 0 {
		fmt.Fprintf(t.stderr, "elrun: task %d: the job has finished without these peers\n", r.task.Rank)
		return nil
	}
	return err
}

// waitTicket waits for the job after the last one of this task, and returns it with a ticket, or with
// its end.
func (r *ticketFile) waitTicket(ctx context.Context, t *terminal, patience time.Duration, record stepRecord) (stepJob, error) {
	ctx, release := t.interruptible(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("task %d has waited %v for task 0 to write %s: %w", r.task.Rank, patience, r.path, errShared))
	defer cancel()
	told := false
	for begun := time.Now(); ; {
		j, ok, err := r.next(record)
		if err != nil || ok && (isTicket(j.state) || strings.HasPrefix(j.state, taskEnded)) {
			return j, err
		}
		if !told && time.Since(begun) > ticketFileNotice {
			told = true
			fmt.Fprintf(t.stderr, "elrun: task %d waits for task 0 to write %s: %v\n", r.task.Rank, printable.Line(r.path), r.advice(record))
		}
		if err := pause.For(ctx, ticketFilePeriod); err != nil {
			return stepJob{}, err
		}
	}
}

// advice returns what may be wrong if the file has no ticket for a task.
func (t *ticketFile) advice(record stepRecord) error {
	last, _ := record.last()
	if all, err := t.jobs(); err == nil && last != "" && len(all) > 0 && all[len(all)-1].id == last {
		return errors.New("this task was in the step's job before, and task 0 has begun no other one")
	}
	return errShared
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

// ended returns the exit status of task 0's launcher of the job with an ID; ok is false if it has not
// ended.
func (t *ticketFile) ended(id string) (status int, ok bool) {
	all, _ := t.jobs() // no job after an error
	for _, j := range all {
		word, ended := strings.CutPrefix(j.state, taskEnded)
		// A text without a number does not mean that the task has ended: another program may have
		// written it.
		if status, err := strconv.Atoi(word); j.id == id && ended && err == nil {
			return status, true
		}
	}
	return 0, false
}

// isTicket reports whether a text has the form of a ticket.
func isTicket(text string) bool {
	form, _, dotted := strings.Cut(text, ".")
	return dotted && isTicketForm(form)
}

// write replaces the file atomically: readers see either the old text or the new text. Only the
// user may read it.
func (t *ticketFile) write(text string) error {
	f, err := os.CreateTemp(filepath.Dir(t.path), filepath.Base(t.path)+".new") // with private.File
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), t.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// read returns the text in the file, "" if there is no file. It is an error if the file belongs
// to another user or if others have access to it.
func (t *ticketFile) read() (string, error) {
	// Network file systems cache for a while that a file is missing. Opening the folder makes the
	// file system look for the file again.
	if dir, err := os.Open(filepath.Dir(t.path)); err == nil {
		_ = dir.Close()
	}
	// O_NOFOLLOW refuses a symbolic link, which another user could have put there to make this
	// task read another file.
	f, err := os.OpenFile(t.path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("rendezvous of the tasks: %w", err)
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return "", fmt.Errorf("rendezvous of the tasks: %s: %w", t.path, err)
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
func (t *ticketFile) removeOldFiles(now time.Time) {
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(t.path), ticketFilePrefix+"*")) // the only possible error is a malformed pattern, from brackets in the folder's name
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
