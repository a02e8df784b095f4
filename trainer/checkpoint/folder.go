package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Parts of a checkpoint's file name, as in step-000000001200.safetensors.
const (
	prefix = "step-"
	suffix = ".safetensors"
	digits = 12
)

// fileName returns the file name of the checkpoint of a step.
func fileName(step int64) string { return fmt.Sprintf("%s%0*d%s", prefix, digits, step, suffix) }

// stepOf returns the step of a file name. ok is false for a name that fileName does not return,
// such as step-12.safetensors: files with other names are never opened or deleted.
func stepOf(name string) (step int64, ok bool) {
	number, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	number, ok = strings.CutSuffix(number, suffix)
	step, err := strconv.ParseInt(number, 10, 64)
	return step, ok && err == nil && step > 0 && fileName(step) == name
}

// Problem is a file that Latest has skipped, with the reason.
type Problem struct {
	Path string
	Err  error // wraps ErrDamaged, ErrVersion, the error of fits, or the file system's
}

// String returns path and reason for people to read.
func (p Problem) String() string { return fmt.Sprintf("%s: %v", p.Path, p.Err) }

// Latest opens the checkpoint from which a job goes on: of the run that wrote to dir last, the
// checkpoint of the latest step that is undamaged and that fits accepts; if fits is nil, all headers
// fit. If that run has none, an earlier run is next. Latest also returns, as problems, the
// checkpoints that it skipped, and those of later steps that it could not read; latest step first,
// whether or not there is an error. If no checkpoint is usable, the error wraps ErrNone. The caller
// closes the checkpoint.
func Latest(dir string, fits func(Header) error) (*Checkpoint, []Problem, error) {
	all, err := list(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: latest: %w", err)
	}
	var skipped []found
	var chosen *Checkpoint
	for _, f := range byRun(all) {
		c, err := openFitting(f.path, f.step, fits)
		if err == nil {
			chosen = c
			break
		}
		f.err = err
		skipped = append(skipped, f)
	}
	for _, f := range all {
		if f.err != nil && (chosen == nil || f.step > chosen.Step) {
			skipped = append(skipped, f)
		}
	}
	slices.SortStableFunc(skipped, func(a, b found) int { return cmp.Compare(b.step, a.step) })
	var problems []Problem
	for _, f := range skipped {
		problems = append(problems, Problem{f.path, f.err})
	}
	if chosen == nil {
		return nil, problems, fmt.Errorf("checkpoint: latest: %w in %s (%d skipped)", ErrNone, dir, len(problems))
	}
	return chosen, problems, nil
}

// found is a file in a folder that has the name of a checkpoint.
type found struct {
	path   string
	step   int64  // in its name
	header Header // not verified by the checksum
	err    error  // why there is no header
}

// list returns the checkpoints in a folder, latest step first. It reads only their headers.
func list(dir string) ([]found, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []found
	for _, step := range stepsOf(entries) {
		f := found{path: filepath.Join(dir, fileName(step)), step: step}
		f.header, f.err = peek(f.path)
		all = append(all, f)
	}
	return all, nil
}

// peek reads the header of a checkpoint without verifying the file.
func peek(path string) (h Header, err error) {
	file, size, err := openRegular(path)
	if err != nil {
		return h, err
	}
	defer file.Close()
	l, err := readLayout(file, size)
	if err != nil {
		return h, err
	}
	return headerIn(l)
}

// byRun returns the readable files: those of the run that wrote last come first, and the latest
// step of each run before its other steps.
func byRun(all []found) []found {
	last := make(map[string]int64)
	readable := slices.DeleteFunc(slices.Clone(all), func(f found) bool { return f.err != nil })
	for _, f := range readable {
		last[f.header.Run] = max(last[f.header.Run], f.header.Written)
	}
	slices.SortStableFunc(readable, func(a, b found) int {
		return cmp.Or(cmp.Compare(last[b.header.Run], last[a.header.Run]), cmp.Compare(a.header.Run, b.header.Run))
	})
	return readable
}

// stepsOf returns the steps of the checkpoints among the entries, latest first.
func stepsOf(entries []fs.DirEntry) []int64 {
	var steps []int64
	for _, e := range entries {
		if step, ok := stepOf(e.Name()); ok {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b int64) int { return cmp.Compare(b, a) })
	return steps
}

// openFitting opens the checkpoint of a step. It returns an error if the header has another step,
// as after a renaming, or if fits refuses it.
func openFitting(path string, step int64, fits func(Header) error) (*Checkpoint, error) {
	c, err := open(path)
	if err != nil {
		return nil, err
	}
	if c.Step != step {
		err = fmt.Errorf("%w: the file is of step %d, and its name says another step: was the file renamed?", ErrDamaged, c.Step)
	} else if fits != nil {
		err = fits(c.Header)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Keep deletes old checkpoints from dir. Of the checkpoints whose step is at most step, the newest
// n stay. Checkpoints of later steps belong to another run and stay too. n is at least 1. With 2 or
// more, a job can resume even if the newest checkpoint is damaged.
func Keep(dir string, n int, step int64) error {
	if n < 1 {
		return fmt.Errorf("checkpoint: keep %d in %s: want at least 1", n, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("checkpoint: keep: %w", err)
	}
	steps := slices.DeleteFunc(stepsOf(entries), func(s int64) bool { return s > step })
	var failed []error
	for _, s := range steps[min(n, len(steps)):] {
		failed = append(failed, remove(filepath.Join(dir, fileName(s))))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("checkpoint: keep: %w", err)
	}
	return nil
}

// remove deletes a file. It is no error if another process has deleted it.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
