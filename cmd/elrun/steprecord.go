package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/internal/scheduler"
)

// stepRecord is the memory of a task of a Slurm step from one elrun to the next: a file of this user
// with the ID of the last job of the step that the task was in.
type stepRecord struct{ path string } // "" without a folder, as in a container without a home

// newStepRecord returns the record of a task.
func newStepRecord(task *scheduler.Task) stepRecord {
	dir, err := private.StateDir()
	if dir = filepath.Join(dir, "steps"); err != nil || private.MkdirAll(dir) != nil {
		return stepRecord{}
	}
	return stepRecord{filepath.Join(dir, fmt.Sprintf("%s.task%d", task.Step, task.Rank))}
}

// last returns the ID of the last job, "" if there was none. known is false without a record.
func (s stepRecord) last() (id string, known bool) {
	b, _ := os.ReadFile(s.path) // no file: no job
	return strings.TrimSpace(string(b)), s.path != ""
}

// set records a job, and removes the records of old steps.
func (s stepRecord) set(id string) error {
	if s.path == "" {
		return nil
	}
	s.removeOld(time.Now())
	f, err := private.Create(s.path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id + "\n")
	return errors.Join(err, f.Close())
}

// removeOld removes the records of steps that began long ago.
func (s stepRecord) removeOld(now time.Time) {
	files, _ := os.ReadDir(filepath.Dir(s.path))
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > ticketFileLife {
			_ = os.Remove(filepath.Join(filepath.Dir(s.path), f.Name()))
		}
	}
}
