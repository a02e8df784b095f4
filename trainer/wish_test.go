package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// wishes are those who wish a checkpoint in an arena.
type wishes struct {
	asking sync.WaitGroup
	mu     sync.Mutex
	saved  []wish.Saved
	errs   []error
}

// wish asks a peer for a checkpoint until it is settled, as the command does.
func (w *wishes) wish(ctx context.Context, g *elastic.Group) {
	w.asking.Go(func() {
		var out wish.Saved
		var err error
		for err == nil && !out.Settled() {
			out, err = g.Admin().Save(ctx, out.Since)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.saved, w.errs = append(w.saved, out), append(w.errs, err)
	})
}

// at calls do when the peer begins a step for the first time, in the goroutine of the peer.
func at(x *actor, step int64, do func()) {
	begin := x.cfg.Hooks.OnBegin
	done := false
	x.cfg.Hooks.OnBegin = func(s int64) {
		if begin != nil {
			begin(s)
		}
		if s == step && !done {
			done = true
			do()
		}
	}
}

// folders gives each peer a folder of its own, because a killed actor still writes.
func folders(t *testing.T, x *actor, root string) {
	x.cfg.Checkpoint.Dir = filepath.Join(root, fmt.Sprint(x.self.Index))
}

// All who wish a checkpoint at the same time, at any peer, get the same one, and nobody else writes.
func TestACheckpointOnAWish(t *testing.T) {
	root := t.TempDir()
	var w wishes
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, churning(20, true))
		a.adjust = func(x *actor) {
			folders(t, x, root)
			if x.self.Index > 0 {
				at(x, 5, func() { w.wish(a.ctx, x.group); w.wish(a.ctx, x.group) })
			}
		}
		a.play(t)
		a.check(t, "with wishes")
		w.asking.Wait()
		events := of[event.Checkpoint](&a.events, 0)
		if len(w.saved) != 4 || len(events) != 1 || len(of[event.Checkpoint](&a.events, 1))+len(of[event.Checkpoint](&a.events, 2)) > 0 {
			t.Fatalf("%+v, errors %v, events %+v", w.saved, w.errs, events)
		}
		for i, s := range w.saved {
			if w.errs[i] != nil || s.Path != events[0].Path || s.Step < s.Since || s.Step > 6 || s.By != a.first[0].ID.Short() || !strings.HasPrefix(s.Path, filepath.Join(root, "0")) {
				t.Errorf("%+v, error %v, event %+v", s, w.errs[i], events[0])
			}
			if _, err := os.Stat(s.Path); err != nil {
				t.Error(err)
			}
		}
	})
}

// If the peer of rank 0 dies at any message after a wish, it has written, or the next peer of rank 0 writes.
func TestAWishOutlivesRankZero(t *testing.T) {
	next := 0 // how often the next peer of rank 0 has written
	for k := int64(1); k < 40; k += 3 {
		root := t.TempDir()
		var w wishes
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, churning(300, true))
			a.adjust = func(x *actor) {
				folders(t, x, root)
				if x.self.Index == 2 {
					at(x, 5, func() {
						a.actors[0].killAt.Store(a.actors[0].sent.Load() + k)
						w.wish(a.ctx, x.group)
					})
				}
			}
			a.play(t)
			w.asking.Wait()
			s := w.saved[0]
			if w.errs[0] != nil || s.Failed != "" || s.Step < s.Since || s.By != a.first[0].ID.Short() && s.By != a.first[1].ID.Short() {
				t.Fatalf("killed at message %d: %+v, error %v", k, s, w.errs[0])
			}
			writer := 0
			if s.By == a.first[1].ID.Short() {
				writer = 1
				next++
			}
			if _, err := os.Stat(s.Path); err != nil || filepath.Base(filepath.Dir(s.Path)) != fmt.Sprint(writer) {
				t.Errorf("killed at message %d: %+v, error %v", k, s, err)
			}
			if !a.actors[0].killed.Load() {
				t.Errorf("no kill at message %d", k)
			}
		})
	}
	if next == 0 {
		t.Error("the peer of rank 0 has always written before it died")
	}
}

// A peer of rank 0 that leaves hands a wish on to the next one, and does not take it for the end of the training.
func TestAWishWhenRankZeroLeaves(t *testing.T) {
	root := t.TempDir()
	var w wishes
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, churning(60, true))
		a.adjust = func(x *actor) {
			folders(t, x, root)
			switch x.self.Index {
			case 0:
				at(x, 5, func() { x.group.Leave() })
			case 2:
				at(x, 5, func() { w.wish(a.ctx, x.group) })
			}
		}
		a.play(t)
		w.asking.Wait()
		if s := w.saved[0]; w.errs[0] != nil || s.Path == "" {
			t.Errorf("%+v, error %v", s, w.errs[0])
		}
	})
}

// A wish that cannot be fulfilled is answered with the reason, and the job goes on.
func TestAWishThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, adjust := range map[string]func(x *actor){
		"has no folder":        func(x *actor) {},
		"could not be written": func(x *actor) { x.cfg.Checkpoint.Dir = filepath.Join(file, "x") },
	} {
		var w wishes
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, churning(20, true))
			a.adjust = func(x *actor) {
				adjust(x)
				if x.self.Index == 1 {
					at(x, 5, func() { w.wish(a.ctx, x.group) })
				}
			}
			a.play(t)
			a.check(t, want)
			w.asking.Wait()
			if s := w.saved[0]; w.errs[0] != nil || s.Path != "" || !strings.Contains(s.Failed, want) {
				t.Errorf("%+v, error %v, want %q", s, w.errs[0], want)
			}
		})
	}
}

// Before the training, and after it, and in a loop of the program's own, a wish is answered at once.
func TestAWishOutsideOfATraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, churning(6, true))
		a.adjust = func(x *actor) {
			x.cfg.Checkpoint.Dir = t.TempDir()
			ask := func(ctx context.Context, g *elastic.Group, want string) {
				if s, err := g.Admin().Save(ctx, 0); err != nil || !strings.Contains(s.Failed, want) {
					t.Errorf("%+v, error %v, want %q", s, err, want)
				}
			}
			x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) error {
				ask(ctx, g, "has not begun to train")
				err := trainer.Run(ctx, g, m, x.cfg)
				<-time.After(time.Second) // both have ended the training, and none the group
				ask(ctx, g, "has ended after step 6")
				<-time.After(time.Second)
				return err
			}
		}
		a.play(t)
	})
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, churning(6, true))
		a.adjust = func(x *actor) {
			x.train = func(ctx context.Context, g *elastic.Group, _ trainer.Model) error {
				step, sum := int64(0), []float64{0}
				for turn := range g.Steps(ctx, elastic.Vectors(&step, &sum), 5) {
					if s, err := g.Admin().Save(ctx, 0); err != nil || !strings.Contains(s.Failed, "saves no checkpoints") {
						t.Errorf("%+v, error %v", s, err)
					}
					if err := collective.AllReduce(ctx, turn.Comm, sum, sum, collective.Sum[float64]); err != nil {
						continue
					}
					step++
				}
				return g.Err()
			}
		}
		a.play(t)
		for _, x := range a.actors {
			if x.err != nil {
				t.Error(x.err)
			}
		}
	})
	if _, err := (elastic.Admin{}).Save(t.Context(), 0); err == nil || errors.Is(err, elastic.ErrNoView) {
		t.Errorf("error %v of no group", err)
	}
}
