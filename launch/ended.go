package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch/internal/job"
)

// The end of a job is recorded in a file that only this user can read, on the host of the launcher
// and on the hosts where it started peers by ssh.

const (
	// endedLife is how long the record of an ended job is kept.
	endedLife = 24 * time.Hour
	// maxEnded bounds the file of a job, in bytes.
	maxEnded = 64 << 10
	// endedSuffix follows the name of the job in the name of its file.
	endedSuffix = ".json"
)

// Ended is the end of a job as its launcher has seen it.
type Ended struct {
	// Began and At are the times of the job's start and end, by the clock of the launcher's host.
	Began   time.Time `json:"began"`
	At      time.Time `json:"at"`
	Status  int       `json:"status"`           // exit status of the launcher, see Result.Status
	Outcome string    `json:"outcome"`          // finished, stopped (all left as asked), failed, gave up, or interrupted by a signal
	Reason  string    `json:"reason,omitempty"` // one line; "" if nobody failed
	// Result is the job's last line; "" if its peers reported no result.
	Result string `json:"result,omitempty"`
}

// LastStatus returns the last status of a job of this user that ended within the last 24 hours;
// Status.Ended describes the end. The beginning of a name is enough if it is the beginning of
// exactly one job's name and no job's full name. The errors are ErrNoJob and ErrWhichJob.
func LastStatus(ctx context.Context, name string) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, fmt.Errorf("launch: find job: %w", context.Cause(ctx))
	}
	dir, err := endedDir()
	if err != nil {
		return Status{}, fmt.Errorf("launch: %w: %s (%w)", ErrNoJob, name, err)
	}
	job, err := chooseJob(name, removeExpired(dir, time.Now()))
	// chooseJob's error would list the ended jobs as running ones.
	if errors.Is(err, ErrNoJob) {
		return Status{}, fmt.Errorf("launch: %w: %s", ErrNoJob, name)
	}
	if err != nil {
		return Status{}, err
	}
	s, err := readEnded(filepath.Join(dir, job+endedSuffix))
	if err != nil {
		return Status{}, fmt.Errorf("launch: end of job %s: %w", job, err)
	}
	// The name in the file may differ: return the name by which the job was found.
	s.Job = job
	return s, nil
}

// endedDir returns the folder of the records.
func endedDir() (string, error) {
	state, err := private.StateDir()
	return filepath.Join(state, "ended"), err
}

// writeEnded writes the record of a job, and removes expired records. A rename replaces an earlier
// record of the same name as a whole, so that a reader never sees an incomplete record. The caller
// may ignore the error: the record is a service for people.
func writeEnded(s Status) error {
	dir, err := endedDir()
	if err != nil {
		return err
	}
	if err := validJob(s.Job); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := private.MkdirAll(dir); err != nil {
		return err
	}
	removeExpired(dir, time.Now())
	f, err := os.CreateTemp(dir, ".new-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, s.Job+endedSuffix))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// removeExpired removes the expired records in a folder and returns the names of the remaining
// jobs, in order. Temporary files of launchers that died while they wrote expire as well.
func removeExpired(dir string, now time.Time) (jobs []string) {
	files, _ := os.ReadDir(dir) // no folder: no job has ended yet
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		name, ours := strings.CutSuffix(f.Name(), endedSuffix)
		switch {
		case now.Sub(info.ModTime()) > endedLife:
			_ = os.Remove(filepath.Join(dir, f.Name()))
		case ours && validJob(name) == nil:
			jobs = append(jobs, name)
		}
	}
	return jobs
}

// readEnded reads the record of a job, at most maxEnded bytes of it.
func readEnded(path string) (Status, error) {
	f, err := os.Open(path)
	if err != nil {
		return Status{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnded))
	if err != nil {
		return Status{}, err
	}
	return decodeEnded(text)
}

// decodeEnded decodes the text of a record. The lists of members are empty, not nil: the status in
// JSON has them as [], as the status of a running job.
func decodeEnded(text []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(text, &s); err != nil {
		return Status{}, fmt.Errorf("decode: %w", err)
	}
	if s.Ended == nil {
		return Status{}, errors.New("decode: the record does not say how the job ended")
	}
	s.Members, s.WaitingFor = []MemberStatus{}, []string{}
	return s, nil
}

// formatOutcome describes the exit status of a launcher. stopped means that all peers have left as
// asked.
func formatOutcome(status int, signal syscall.Signal, stopped bool) string {
	switch {
	case signal != 0:
		return fmt.Sprintf("interrupted by signal %d (%v)", signal, signal)
	case status == 0 && stopped:
		return "stopped"
	case status == 0:
		return "finished"
	case status == StatusQuorum:
		return "gave up, as too few peers were left"
	}
	return "failed"
}

// recordEnd records how the job ended, on this host and on the hosts of its peers. reason is one
// line, or "".
func (r *runner) recordEnd(status int, done *event.Done, reason string) {
	if !r.outcome.member { // no peer was ever a member
		return
	}
	s := Status{Job: r.o.Job, Step: r.report.progress.step, Of: r.report.progress.of, Ended: &Ended{Began: r.begun, At: time.Now(),
		Status: status, Outcome: formatOutcome(status, r.outcome.signal, r.outcome.end() == job.JobStopped), Reason: reason}}
	if done != nil {
		s.Step, s.Ended.Result = max(s.Step, done.Steps), done.Line()
	}
	_ = writeEnded(s) // ignore errors: a container without a folder for records needs none
	r.procs.hosts.broadcast(frame{order: order{Ended: &s}})
}

// broadcast sends a frame to all hosts. It accepts a nil list.
func (l *hostList) broadcast(f frame) {
	if l == nil {
		return
	}
	for _, h := range l.hosts {
		h.send(f)
	}
}
