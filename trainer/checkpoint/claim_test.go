package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// owned is a checkpoint header of a run, written at a time.
func owned(step int64, run string, written int64) Header {
	h := sample(step)
	h.Run, h.Written = run, written
	return h
}

func mustWriteOf(t *testing.T, dir string, h Header) {
	t.Helper()
	if _, err := Write(dir, h, stateOf(h.Step, 9)); err != nil {
		t.Fatal(err)
	}
}

func mustAcquire(t *testing.T, dir string, o Owner, runs ...string) *Claim {
	t.Helper()
	c, err := Acquire(dir, o, runs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustRelease(t *testing.T, claims ...*Claim) {
	t.Helper()
	for _, c := range claims {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// refused requires that a job cannot write to a folder, and that the reason has the given words.
func refused(t *testing.T, dir string, o Owner, words ...string) {
	t.Helper()
	c, err := Acquire(dir, o)
	if err == nil {
		mustRelease(t, c)
	}
	if !errors.Is(err, ErrForeign) {
		t.Fatalf("job %s: error %v, want ErrForeign", o.Job, err)
	}
	for _, w := range append(words, dir, "write to another folder") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want %q in it", err, w)
		}
	}
}

// One job at a time writes to a folder, with all its peers.
func TestOneJobWritesToAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	a, b := Owner{"job a", "run a", "first"}, Owner{"job b", "run b", "second"}
	first, second := mustAcquire(t, dir, a), mustAcquire(t, dir, a)
	refused(t, dir, b, "still running (first)", "wait for its end")
	mustRelease(t, first)
	refused(t, dir, b, "still running (first)") // a peer of job a still runs
	refused(t, dir, Owner{"job b", "run a", "resumed from the same run"}, "still running (first)")
	mustRelease(t, second)
	if got := OwnerOf(dir); got != a {
		t.Errorf("the last owner is %+v", got)
	}
	// Job a has ended without a checkpoint.
	mustRelease(t, mustAcquire(t, dir, b))
	if got := OwnerOf(dir); got != b {
		t.Errorf("the owner is %+v", got)
	}
	if got := OwnerOf(filepath.Join(dir, "missing")); got != (Owner{}) {
		t.Errorf("the owner of nothing is %+v", got)
	}
}

// A job that has not resumed from the checkpoints in a folder does not write to it.
func TestCheckpointsOfAnotherRun(t *testing.T) {
	dir := t.TempDir()
	a, b := Owner{"job a", "run a", ""}, Owner{"job b", "run b", ""}
	mustRelease(t, mustAcquire(t, dir, a))
	mustWriteOf(t, dir, owned(3, "run a", 1))
	mustWriteOf(t, dir, owned(6, "run a", 2))
	refused(t, dir, b, "run a", "step 6", "resume that run")
	if got := OwnerOf(dir); got != a {
		t.Errorf("a refused job owns the folder: %+v", got)
	}
	// A later generation of the same job, and a job that has resumed, are not refused.
	mustRelease(t, mustAcquire(t, dir, Owner{"job a", "another run", ""}))
	mustRelease(t, mustAcquire(t, dir, Owner{"job c", "run a", ""}))
	// Files that are damaged or no checkpoints belong to nobody.
	other := t.TempDir()
	overwrite(t, filepath.Join(other, fileName(4)), []byte("damaged"))
	mustRelease(t, mustAcquire(t, other, b))
	// A checkpoint of an earlier version has no run.
	old := t.TempDir()
	mustWriteOf(t, old, owned(5, "", 0))
	refused(t, old, b, "without an ID", "step 5")
	mustRelease(t, mustAcquire(t, old, b, ""))
}

// Of jobs that start at once in one folder at most one gets it, and never with the peers of another.
func TestJobsAtOnceInOneFolder(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var held []*Claim
	jobs := make(map[string]int)
	var work sync.WaitGroup
	for i := range 40 {
		work.Go(func() {
			o := Owner{Job: []string{"a", "b"}[i%2]}
			c, err := Acquire(dir, o)
			if err != nil && !errors.Is(err, ErrForeign) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				held = append(held, c)
				jobs[o.Job]++
			}
		})
	}
	work.Wait()
	if len(jobs) > 1 {
		t.Errorf("both jobs write: %v", jobs)
	}
	mustRelease(t, held...)
}

// A file of an owner that is cut off or strange names no owner.
func TestStrangeOwner(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", `{"job":"a`, "[]", strings.Repeat("x", 2*maxOwner)} {
		overwrite(t, filepath.Join(dir, claimName), []byte(text))
		if got := OwnerOf(dir); got != (Owner{}) {
			t.Errorf("%.10q: owner %+v", text, got)
		}
		o := Owner{"job", "run", "name"}
		mustRelease(t, mustAcquire(t, dir, o))
		if got := OwnerOf(dir); got != o {
			t.Errorf("%.10q: owner %+v afterwards", text, got)
		}
	}
	file := filepath.Join(dir, "file")
	overwrite(t, file, nil)
	if _, err := Acquire(file, Owner{}); err == nil || errors.Is(err, ErrForeign) {
		t.Errorf("a file for a folder: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, claimName)); err != nil {
		t.Error(err)
	}
}

// Latest takes the run that wrote last, and not the run with the highest step.
func TestLatestIsOfTheLastRun(t *testing.T) {
	dir := t.TempDir()
	mustWriteOf(t, dir, owned(200, "run a", 10))
	mustWriteOf(t, dir, owned(190, "run a", 9))
	mustWriteOf(t, dir, owned(120, "run b", 30))
	mustWriteOf(t, dir, owned(110, "run b", 20))
	mustWriteOf(t, dir, owned(999, "", 0)) // of an earlier version
	latest := func(fits func(Header) error) (run string, step int64, problems []Problem) {
		t.Helper()
		c, problems, err := Latest(dir, fits)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Run, c.Step, problems
	}
	if run, step, problems := latest(nil); run != "run b" || step != 120 || problems != nil {
		t.Errorf("step %d of %s, problems %v", step, run, problems)
	}
	overwrite(t, filepath.Join(dir, fileName(120)), []byte("damaged"))
	if run, step, problems := latest(nil); run != "run b" || step != 110 || len(problems) != 1 {
		t.Errorf("step %d of %s, problems %v", step, run, problems)
	}
	alien := func(h Header) error {
		if h.Run == "run b" {
			return errors.New("another seed")
		}
		return nil
	}
	if run, step, problems := latest(alien); run != "run a" || step != 200 || len(problems) != 1 || !strings.Contains(problems[0].Path, fileName(110)) {
		t.Errorf("step %d of %s, problems %v", step, run, problems)
	}
}
