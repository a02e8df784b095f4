package ctl

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

	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch/spec"
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

// LastStatus is launch.LastStatus.
func LastStatus(ctx context.Context, name string) (spec.Status, error) {
	if err := ctx.Err(); err != nil {
		return spec.Status{}, fmt.Errorf("launch: find job: %w", context.Cause(ctx))
	}
	dir, err := endedDir()
	if err != nil {
		return spec.Status{}, fmt.Errorf("launch: %w: %s (%w)", ErrNoJob, name, err)
	}
	job, err := chooseJob(name, removeExpired(dir, time.Now()))
	// chooseJob's error would list the ended jobs as running ones.
	if errors.Is(err, ErrNoJob) {
		return spec.Status{}, fmt.Errorf("launch: %w: %s", ErrNoJob, name)
	}
	if err != nil {
		return spec.Status{}, err
	}
	s, err := readEnded(filepath.Join(dir, job+endedSuffix))
	if err != nil {
		return spec.Status{}, fmt.Errorf("launch: end of job %s: %w", job, err)
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

// WriteEnded writes the record of a job, and removes expired records. A rename replaces an earlier
// record of the same name as a whole, so that a reader never sees an incomplete record. The caller
// may ignore the error: the record is a service for people.
func WriteEnded(s spec.Status) error {
	dir, err := endedDir()
	if err != nil {
		return err
	}
	if err := spec.ValidJob(s.Job); err != nil {
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
		case ours && spec.ValidJob(name) == nil:
			jobs = append(jobs, name)
		}
	}
	return jobs
}

// readEnded reads the record of a job, at most maxEnded bytes of it.
func readEnded(path string) (spec.Status, error) {
	f, err := os.Open(path)
	if err != nil {
		return spec.Status{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnded))
	if err != nil {
		return spec.Status{}, err
	}
	return decodeEnded(text)
}

// decodeEnded decodes the text of a record. The lists of members are empty, not nil: the status in
// JSON has them as [], as the status of a running job.
func decodeEnded(text []byte) (spec.Status, error) {
	var s spec.Status
	if err := json.Unmarshal(text, &s); err != nil {
		return spec.Status{}, fmt.Errorf("decode: %w", err)
	}
	if s.Ended == nil {
		return spec.Status{}, errors.New("decode: the record does not say how the job ended")
	}
	s.Members, s.WaitingFor = []spec.MemberStatus{}, []string{}
	return s, nil
}

// FormatOutcome describes the exit status of a launcher. stopped means that all peers have left as
// asked.
func FormatOutcome(status int, signal syscall.Signal, stopped bool) string {
	switch {
	case signal != 0:
		return fmt.Sprintf("interrupted by signal %d (%v)", signal, signal)
	case status == 0 && stopped:
		return "stopped"
	case status == 0:
		return "finished"
	case status == spec.StatusQuorum:
		return "gave up, as too few peers were left"
	}
	return "failed"
}
