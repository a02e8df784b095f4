package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch/spec"
)

// endedAs returns the status of a job that has ended.
func endedAs(job, outcome string) spec.Status {
	return spec.Status{Job: job, Step: 3, Of: 3, Ended: &spec.Ended{Outcome: outcome, Began: time.Unix(1e9, 0).UTC(), At: time.Unix(1e9+7, 0).UTC()}}
}

// ownEnds keeps the records of ended jobs in a folder of the test, which it returns.
func ownEnds(t *testing.T) (dir string) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir, err := endedDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The record of a job is found by the job's name or the beginning of the name. It is the latest
// record, and only the user can read it.
func TestKeepEnded(t *testing.T) {
	dir := ownEnds(t)
	if _, err := LastStatus(t.Context(), "m"); !errors.Is(err, ErrNoJob) {
		t.Errorf("before any job: %v", err)
	}
	for _, s := range []spec.Status{endedAs("mnist", "failed"), endedAs("mnist", "finished"), endedAs("mnist-2", "failed")} {
		if err := WriteEnded(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"mnist": "finished", "mnist-": "failed", "mnist-2": "failed"} {
		s, err := LastStatus(t.Context(), name)
		if err != nil || s.Ended == nil || s.Ended.Outcome != want || s.Members == nil || s.WaitingFor == nil {
			t.Errorf("%s: %+v, %v, want %s", name, s, err, want)
		}
	}
	for name, want := range map[string]error{"m": ErrWhichJob, "other": ErrNoJob, "../x": ErrNoJob} {
		if _, err := LastStatus(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != private.File {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// Records older than a day are removed, and so are temporary files of a launcher that was killed
// while it wrote.
func TestSweepEnded(t *testing.T) {
	dir := ownEnds(t)
	if err := errors.Join(WriteEnded(endedAs("old", "x")), WriteEnded(endedAs("new", "x"))); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-endedLife - time.Minute)
	half, file := filepath.Join(dir, ".new-1"), filepath.Join(dir, "old"+endedSuffix)
	if err := errors.Join(os.WriteFile(half, nil, 0o600), os.Chtimes(half, long, long), os.Chtimes(file, long, long)); err != nil {
		t.Fatal(err)
	}
	if jobs := removeExpired(dir, time.Now()); !slices.Equal(jobs, []string{"new"}) {
		t.Errorf("jobs %v", jobs)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// The record of a job whose name would lead out of the folder is not written.
func TestKeepEndedNames(t *testing.T) {
	ownEnds(t)
	for _, name := range []string{"", "../x", "a/b", ".x", strings.Repeat("x", spec.MaxJobName+1)} {
		if WriteEnded(endedAs(name, "x")) == nil {
			t.Errorf("%q is kept", name)
		}
	}
}

// A damaged record is an error.
func TestBrokenEnd(t *testing.T) {
	dir := ownEnds(t)
	if err := private.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"job":"m"}`, "[]"} {
		if err := os.WriteFile(filepath.Join(dir, "m"+endedSuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := LastStatus(t.Context(), "m"); err == nil || errors.Is(err, ErrNoJob) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func TestWordOutcome(t *testing.T) {
	for want, c := range map[string]struct {
		status  int
		signal  syscall.Signal
		stopped bool
	}{
		"finished":                              {},
		"stopped":                               {stopped: true},
		"failed":                                {status: 1},
		"gave up, as too few peers were left":   {status: spec.StatusQuorum},
		"interrupted by signal 15 (terminated)": {143, syscall.SIGTERM, true},
	} {
		if got := FormatOutcome(c.status, c.signal, c.stopped); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzDecodeEnded(f *testing.F) {
	f.Add([]byte(`{"job":"m","epoch":0,"step":3,"members":null,"waiting_for":null,"ended":{"status":1,"outcome":"failed"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := decodeEnded(text); err == nil && (s.Ended == nil || s.Members == nil) {
			t.Errorf("%q: %+v", text, s)
		}
	})
}
