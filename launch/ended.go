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
)

// How a job ended is kept in a file, which only this user may read, on the host of the launcher
// and on those of the peers that it has started by ssh.

const (
	// endedLife is how long the end of a job is kept.
	endedLife = 24 * time.Hour
	// maxEnded bounds the file of a job, in bytes.
	maxEnded = 64 << 10
	// endedSuffix ends the name of each file; before it is the name of the job.
	endedSuffix = ".json"
)

// Ended says how a job ended, as a launcher has seen it.
type Ended struct {
	Began   time.Time `json:"began"`
	At      time.Time `json:"at"`
	Status  int       `json:"status"`           // exit status of the launcher, see Result.Status
	Outcome string    `json:"outcome"`          // finished, failed, gave up, or interrupted by a signal
	Reason  string    `json:"reason,omitempty"` // a line; "" where nobody failed
	// Result is the job's last line; "" if its peers reported no result.
	Result string `json:"result,omitempty"`
}

// LastStatus returns the status of a job of this user that has ended within a day, with how that
// was in Status.Ended. The beginning of a name stands for the job, if there is only one that
// begins so and none that is called so. Errors are ErrNoJob and ErrWhichJob.
func LastStatus(ctx context.Context, name string) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, fmt.Errorf("launch: find job: %w", context.Cause(ctx))
	}
	dir, err := endedDir()
	if err != nil {
		return Status{}, fmt.Errorf("launch: %w: %s (%w)", ErrNoJob, name, err)
	}
	job, err := chooseJob(name, sweepEnded(dir, time.Now()))
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
	s.Job = job
	return s, nil
}

// endedDir is the folder of the files.
func endedDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the ends of jobs: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "elrun", "ended"), nil
}

// keepEnded writes the file of a job, and removes those of jobs that ended long ago.
func keepEnded(s Status) error {
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
	sweepEnded(dir, time.Now())
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

// sweepEnded returns the jobs in a folder, in order, after it has removed the files that are too
// old.
func sweepEnded(dir string, now time.Time) (jobs []string) {
	files, _ := os.ReadDir(dir) // none: no job has ended yet
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

// readEnded reads the file of a job.
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

// decodeEnded decodes what keepEnded has written.
func decodeEnded(text []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(text, &s); err != nil {
		return Status{}, fmt.Errorf("decode: %w", err)
	}
	if s.Ended == nil {
		return Status{}, errors.New("decode: it has not ended")
	}
	s.Members, s.WaitingFor = []MemberStatus{}, []string{}
	return s, nil
}

// wordOutcome words an exit status of a launcher.
func wordOutcome(status int, signal syscall.Signal) string {
	switch {
	case signal != 0:
		return fmt.Sprintf("interrupted by signal %d (%v)", signal, signal)
	case status == 0:
		return "finished"
	case status == StatusQuorum:
		return "gave up, as too few peers were left"
	}
	return "failed"
}

// keep keeps how the job ended, here and on the hosts of its peers. reason is a line, or "".
func (r *runner) keep(status int, done *event.Done, reason string) {
	if !r.out.member { // nothing has begun
		return
	}
	s := Status{Job: r.o.Job, Step: r.progress.step, Of: r.progress.of, Ended: &Ended{Began: r.begun, At: time.Now(),
		Status: status, Outcome: wordOutcome(status, r.out.signal), Reason: reason}}
	if done != nil {
		s.Step, s.Ended.Result = max(s.Step, done.Steps), done.Line()
	}
	_ = keepEnded(s) // where there is no folder for it, as in a container, nobody asks for it
	r.hosts.tell(frame{Ended: &s})
}

// tell sends a frame to all hosts.
func (l *hostList) tell(f frame) {
	if l == nil {
		return
	}
	for _, h := range l.hosts {
		h.send(f)
	}
}
