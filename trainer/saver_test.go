package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// files lists the names of the checkpoints in a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "step-*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// stepFile returns the file name of the checkpoint of a step.
func stepFile(step int) string { return fmt.Sprintf("step-%012d.safetensors", step) }

// save runs cfg at n peers, and returns the folder of the checkpoints; every is the number of steps
// between two checkpoints.
func save(t *testing.T, n int, cfg trainer.Config, every int64) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "checkpoints")
	cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: every, Keep: 2}
	synctest.Test(t, func(t *testing.T) {
		a := newArena(n, cfg)
		a.play(t)
		a.check(t, "with checkpoints")
		if events := of[event.Checkpoint](&a.events, 0); len(events) < 2 || filepath.Dir(events[0].Path) != dir {
			t.Errorf("events %+v", events)
		}
		for i := 1; i < n; i++ {
			if events := of[event.Checkpoint](&a.events, i); len(events) > 0 {
				t.Errorf("rank %d saved, too: %+v", i, events)
			}
		}
	})
	return dir
}

// If a job ends early and resumes with any number of peers, it reaches the weights of an uninterrupted job.
func TestResumeWithAnyNumberOfPeers(t *testing.T) {
	whole := churning(11, true)
	want := alone(t, whole)
	dir := save(t, 3, churning(7, true), 2)
	// The last step is saved only if a checkpoint is due.
	if got := fmt.Sprint(files(t, dir)); got != fmt.Sprint([]string{stepFile(4), stepFile(6)}) {
		t.Fatalf("files %v", got)
	}
	for _, n := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(n, whole)
			a.adjust = func(x *actor) { x.cfg.Checkpoint.Resume = dir }
			a.play(t)
			for _, x := range a.actors {
				if x.err != nil || x.result.SHA256 != want || len(x.steps) != 5 || x.steps[0].Step != 7 {
					t.Errorf("%d peers: error %v, result %v, %d steps", n, x.err, x.result, len(x.steps))
				}
			}
			for _, s := range of[event.Step](&a.events, 0) {
				if slices.ContainsFunc(s.OfLost, func(c event.Contribution) bool { return c.Step <= 7 }) {
					t.Errorf("%d peers: the parts of peers of the job before are in the log again: %+v", n, s.OfLost)
				}
			}
		})
	}
}

// If only one peer finds the files, the others get the state from it.
func TestOnePeerHasTheCheckpoint(t *testing.T) {
	whole := churning(11, true)
	want := alone(t, whole)
	dir := save(t, 2, churning(7, true), 2)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, whole)
		told := make([]string, 3)
		a.adjust = func(x *actor) {
			x.cfg.Hooks.Log = func(line string) { told[x.self.Index] += line }
			x.cfg.Checkpoint.Resume = filepath.Join(dir, "nothing")
			if x.self.Index == 1 {
				x.cfg.Checkpoint.Resume = dir
			}
		}
		a.play(t)
		for i, x := range a.actors {
			if x.err != nil || x.result.SHA256 != want || len(x.steps) != 5 {
				t.Errorf("%s: error %v, result %v", x.self.ID, x.err, x.result)
			}
			if line := []string{"no checkpoint to resume from", "resumed after step 6", "no checkpoint to resume from"}[i]; !strings.Contains(told[i], line) {
				t.Errorf("rank %d logged %q, want %q", i, told[i], line)
			}
		}
	})
}

// resumed runs a single peer that resumes from dir. It returns the peer and its log lines.
func resumed(t *testing.T, dir string, cfg trainer.Config) (x *actor, told string) {
	t.Helper()
	cfg.Checkpoint.Resume = dir
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		a.adjust = func(x *actor) { x.cfg.Hooks.Log = func(line string) { told += line + "\n" } }
		a.play(t)
		x = a.actors[0]
	})
	return x, told
}

func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	whole := churning(11, true)
	want := alone(t, whole)
	dir := save(t, 2, churning(7, true), 2)
	newest := filepath.Join(dir, stepFile(6))
	b, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(newest, b, 0o600); err != nil {
		t.Fatal(err)
	}
	x, told := resumed(t, dir, whole)
	if x.err != nil || x.result.SHA256 != want || x.steps[0].Step != 5 {
		t.Errorf("error %v, result %v", x.err, x.result)
	}
	if !strings.Contains(told, "skipped a checkpoint") || !strings.Contains(told, stepFile(6)) || !strings.Contains(told, "after step 4") {
		t.Errorf("told %q", told)
	}
}

// A checkpoint of another job ends the run with an error that names the setting.
func TestACheckpointOfAnotherJobIsRefused(t *testing.T) {
	dir := save(t, 1, churning(7, true), 2)
	for want, change := range map[string]func(c *trainer.Config){
		`microbatch is "5", this job has "8"`: func(c *trainer.Config) { c.Microbatch = 8 },
		`exact is "true"`:                     func(c *trainer.Config) { c.Gradients.Exact = false },
		`data is ""`:                          func(c *trainer.Config) { c.DataHash = "abc" },
		`clip is "0"`:                         func(c *trainer.Config) { c.Gradients.Clip = 2 },
	} {
		cfg := churning(11, true)
		change(&cfg)
		if x, _ := resumed(t, dir, cfg); x.err == nil || !strings.Contains(x.err.Error(), want) || !errors.Is(x.err, checkpoint.ErrNone) {
			t.Errorf("error %v, want %q", x.err, want)
		}
	}
	// Settings that say how long the job runs, or how steps are executed, may differ.
	cfg := churning(9, true)
	cfg.Gradients.BucketBytes = 4
	if x, _ := resumed(t, dir, cfg); x.err != nil || len(x.steps) != 3 {
		t.Errorf("error %v after %d steps", x.err, len(x.steps))
	}
}

// If a checkpoint cannot be written, the error is logged and the job continues.
func TestACheckpointThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := churning(6, false)
	cfg.Checkpoint = trainer.Checkpoint{Dir: filepath.Join(file, "x"), EverySteps: 3}
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, cfg)
		var mu sync.Mutex
		told := ""
		a.adjust = func(x *actor) {
			x.cfg.Hooks.Log = func(line string) {
				mu.Lock()
				defer mu.Unlock()
				told += line + "\n"
			}
		}
		a.play(t)
		a.check(t, "no folder")
		if !strings.Contains(told, "checkpoint of step 3") || !strings.Contains(told, "checkpoint of step 6") {
			t.Errorf("told %q", told)
		}
	})
}

// Checkpoints are written at intervals of time. Steps take at most 40 ms here.
func TestCheckpointsByTime(t *testing.T) {
	dir := t.TempDir()
	cfg := churning(30, false)
	cfg.Checkpoint = trainer.Checkpoint{Dir: dir, Every: 300 * time.Millisecond, Keep: 100}
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, cfg)
		a.adjust = func(x *actor) { x.model.pace = 10 * time.Millisecond }
		a.play(t)
		a.check(t, "by the clock")
	})
	if got := len(files(t, dir)); got < 2 || got > 4 {
		t.Errorf("%d checkpoints in a second", got)
	}
}

// When the quorum is lost, the remaining peers save their state, and the job resumes from that state later. The logs of both runs
// together count every microbatch once.
func TestCheckpointWhenTheQuorumIsLost(t *testing.T) {
	whole := churning(9, true)
	want := alone(t, whole)
	for at := int64(3); at < 6; at++ { // by step 3 the remaining peer has committed a step for certain
		dir := filepath.Join(t.TempDir(), "checkpoints")
		var before []event.Event
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, whole)
			a.adjust = func(x *actor) {
				if x.self.Index == 1 {
					x.cfg.Checkpoint.Dir = dir
					return
				}
				// A killed actor still runs, but is cut off. It has no folder, so it saves nothing.
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == at {
						x.kill()
					}
				}
			}
			a.play(t)
			if x := a.actors[1]; !errors.Is(x.err, elastic.ErrQuorum) || len(of[event.Checkpoint](&a.events, 1)) != 1 {
				t.Errorf("killed at step %d: error %v", at, x.err)
			}
			before = a.events.events
		})
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, whole)
			a.first[0].ID, a.first[1].ID = "another-job-0", "another-job-1"
			a.adjust = func(x *actor) { x.cfg.Checkpoint.Resume = dir }
			a.events.events = before
			a.play(t)
			if sha := a.check(t, "after the loss of the quorum"); sha != want {
				t.Errorf("killed at step %d: weights %s, want %s", at, sha, want)
			}
		})
	}
}

// disked plays a job of n peers that save every second step, on a disk that calls wrap for each write.
func disked(t *testing.T, n int, wrap func(write func() (string, error)) (string, error)) (a *arena) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a = newArena(n, churning(7, true))
		a.adjust = func(x *actor) {
			x.cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 2}
			x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) error {
				return trainer.RunOnDisk(ctx, g, m, x.cfg, wrap)
			}
		}
		a.play(t)
		a.check(t, "on another disk")
	})
	return a
}

// A peer that waits for a slow disk says so, and the others wait for it: nobody is put out. The last steps are written after the
// first, slow write.
func TestASlowDisk(t *testing.T) {
	a := disked(t, 3, func(write func() (string, error)) (string, error) {
		<-time.After(2 * time.Minute)
		return write()
	})
	begun, written, told := []string(nil), []string(nil), false
	for _, e := range a.events.events {
		switch b := e.Body.(type) {
		case event.Fenced, event.Lost:
			t.Errorf("%s reports %s: %+v", e.Peer, b.Name(), b)
		case event.Leave:
			if b.Reason == "stalled" {
				t.Errorf("%s has left: %+v", e.Peer, b)
			}
		case event.Stall:
			told = told || strings.Contains(b.Phase, "writing a checkpoint")
		case event.Saving:
			begun = append(begun, filepath.Base(b.Path))
		case event.Checkpoint:
			written = append(written, filepath.Base(b.Path))
		}
	}
	if want := []string{stepFile(2), stepFile(7)}; !slices.Equal(begun, want) || !slices.Equal(written, want) || !told {
		t.Errorf("begun %q, written %q, want %q; a stall names the reason: %v", begun, written, want, told)
	}
}

// The log tells which file was not written, and why.
func TestAFullDisk(t *testing.T) {
	a := disked(t, 1, func(func() (string, error)) (string, error) { return "", errors.New("the disk is full") })
	ends := make(map[string]string)
	for _, e := range a.events.events {
		if b, ok := e.Body.(event.Saving); ok {
			ends[filepath.Base(b.Path)] = b.Failed
		}
	}
	for _, step := range []int{2, 4, 6} {
		if got := ends[stepFile(step)]; got != "the disk is full" {
			t.Errorf("step %d: got %q of %v", step, got, ends)
		}
	}
}
