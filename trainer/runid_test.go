package trainer_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// runs returns the IDs of the runs of the checkpoints in a folder, each once.
func runs(t *testing.T, dir string) (ids []string) {
	t.Helper()
	for _, name := range files(t, dir) {
		c, err := checkpoint.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, c.Run) {
			ids = append(ids, c.Run)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return ids
}

// playOther runs n peers of another job than save does, with the checkpoint settings of each peer.
func playOther(t *testing.T, n int, cfg trainer.Config, settings func(index int) trainer.Checkpoint) (a *arena) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a = newArena(n, cfg)
		for i := range a.first {
			a.first[i].ID = "other-" + a.first[i].ID
		}
		a.adjust = func(x *actor) { x.cfg.Checkpoint = settings(x.self.Index) }
		a.play(t)
	})
	return a
}

// A job that does not resume is refused, at all its peers, if the folder of one of them has checkpoints of another run.
func TestAFreshJobInTheFolderOfAnother(t *testing.T) {
	dir := save(t, 2, churning(7, true), 2)
	before := runs(t, dir)
	for _, peer := range []int{0, 1, 2} {
		a := playOther(t, 3, churning(9, true), func(index int) trainer.Checkpoint {
			c := trainer.Checkpoint{Dir: dir, EverySteps: 1}
			if index != peer {
				c.Dir = filepath.Join(t.TempDir(), "own")
			}
			return c
		})
		for _, x := range a.actors {
			if x.err == nil || !strings.Contains(x.err.Error(), "belongs to another run ("+before[0]+"), which saved step 6") || len(x.steps) > 0 {
				t.Errorf("folder of peer %d: peer %d has the error %v after %d steps", peer, x.self.Index, x.err, len(x.steps))
			}
		}
		if !errors.Is(a.actors[peer].err, checkpoint.ErrForeign) {
			t.Errorf("peer %d: error %v", peer, a.actors[peer].err)
		}
	}
	if got := runs(t, dir); !slices.Equal(got, before) || len(files(t, dir)) != 2 {
		t.Errorf("files %v of runs %v", files(t, dir), got)
	}
}

// A refused job ends also at a peer that does not run for a while: the peer does not take the ends
// of the others for deaths, and does not train without them.
func TestARefusalReachesASlowPeer(t *testing.T) {
	dir := save(t, 1, churning(7, true), 2)
	for refused := range 3 {
		for at := time.Duration(0); at < 30*time.Millisecond; at += time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				s := stage(3, churning(9, true), func(simnet.Message) bool { return false })
				slow := (refused + 1) % 3
				var mu sync.Mutex
				s.adjust = func(x *actor) {
					if x.self.Index == refused {
						x.cfg.Checkpoint.Dir = dir
					}
					x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) error {
						err := trainer.Run(ctx, g, m, x.cfg)
						s.net.Kill(x.self.ID) // the process exits at once, and its launcher tells the others
						mu.Lock()
						defer mu.Unlock()
						for _, other := range s.actors {
							if other.group != nil {
								other.group.Admin().Dead(x.self.ID)
							}
						}
						return err
					}
				}
				time.AfterFunc(at, func() { s.net.Stop(s.first[slow].ID) })
				time.AfterFunc(at+600*time.Millisecond, func() { s.net.Continue(s.first[slow].ID) })
				s.play(t)
				for _, x := range s.actors {
					if x.err == nil || !strings.Contains(x.err.Error(), "belongs to another run") || len(x.steps) > 0 {
						t.Errorf("peer %d refused, peer %d slow at %v: peer %d has the error %v after %d steps", refused, slow, at, x.self.Index, x.err, len(x.steps))
					}
				}
			})
		}
	}
}

// All peers of a resumed job write under the ID of the run, also those that found no checkpoint.
func TestTheRunIDIsOfTheStateThatAllHave(t *testing.T) {
	dir := save(t, 2, churning(7, true), 2)
	before := runs(t, dir)
	to := t.TempDir()
	playOther(t, 3, churning(11, true), func(index int) trainer.Checkpoint {
		c := trainer.Checkpoint{Dir: to, EverySteps: 1, Resume: filepath.Join(to, "nothing")}
		if index == 2 { // rank 0 writes
			c.Resume = dir
		}
		return c
	})
	if got := runs(t, to); !slices.Equal(got, before) {
		t.Errorf("checkpoints of runs %v, want %v", got, before)
	}
}

// A newcomer learns the ID of the run, and writes under it after the death of all older members.
func TestANewcomerGoesOnWithTheRun(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := churning(40, true)
		cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 1, Keep: 100}
		a := newArena(1, cfg)
		var joined atomic.Bool
		a.adjust = func(x *actor) {
			x.cfg.Hooks.OnBegin = func(step int64) {
				switch {
				case x.self.Index == 0 && step == 3:
					a.start(elastic.Member{ID: "newcomer", Index: 1}, nil)
				case x.self.Index == 1:
					joined.Store(true)
				case joined.Load() && step > 20:
					x.group.Leave()
				}
			}
		}
		a.play(t)
		if x := a.actors[1]; x.err != nil || x.result == nil || x.result.Peers != 1 {
			t.Errorf("the newcomer ended with the result %v, error %v", x.result, x.err)
		}
	})
	if got := runs(t, dir); len(got) != 1 || got[0] == "" || len(files(t, dir)) < 35 {
		t.Errorf("%d checkpoints, of runs %v", len(files(t, dir)), got)
	}
}

// A newcomer whose folder belongs to another run leaves, and the members go on.
func TestANewcomerInTheFolderOfAnother(t *testing.T) {
	dir := save(t, 1, churning(7, true), 2)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, churning(40, true))
		a.first[0].ID, a.first[1].ID = "member-0", "member-1"
		a.adjust = func(x *actor) {
			if x.self.Index == 2 {
				x.cfg.Checkpoint.Dir = dir
			}
			x.cfg.Hooks.OnBegin = func(step int64) {
				if x.self.Index == 0 && step == 3 {
					a.start(elastic.Member{ID: "newcomer", Index: 2}, nil)
				}
			}
		}
		a.play(t)
		for _, x := range a.actors[:2] {
			if x.err != nil || x.result == nil || x.result.Steps != 40 {
				t.Errorf("peer %d: result %v, error %v", x.self.Index, x.result, x.err)
			}
		}
		if err := a.actors[2].err; !errors.Is(err, checkpoint.ErrForeign) {
			t.Errorf("the newcomer has the error %v", err)
		}
	})
}

// A later generation of a job goes on from the job's own checkpoints, and passes over those of other runs in the folder.
func TestALaterGenerationResumes(t *testing.T) {
	whole := churning(11, true)
	want := alone(t, whole)
	dir := save(t, 3, churning(7, true), 2)
	// The folder also has a later checkpoint, which another run has written before.
	b, err := checkpoint.Open(filepath.Join(dir, stepFile(6)))
	if err != nil {
		t.Fatal(err)
	}
	other := b.Header
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	other.Run, other.Step, other.Written = "0123456789abcdef", 100, other.Written+1
	if _, err := checkpoint.Write(dir, other, nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, whole) // of the same job, as the members have the same IDs
		var told [3]string
		a.adjust = func(x *actor) {
			x.cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 2}
			x.cfg.Hooks.Log = func(line string) { told[x.self.Index] += line + "\n" }
		}
		a.play(t)
		for i, x := range a.actors {
			if x.err != nil || x.result.SHA256 != want || len(x.steps) != 5 || !strings.Contains(told[i], "resumed after step 6 of run ") {
				t.Errorf("peer %d: error %v, result %v, %d steps, told %q", i, x.err, x.result, len(x.steps), told[i])
			}
		}
	})
}
