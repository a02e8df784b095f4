package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// copyOf is a newcomer's state.
type copyOf struct {
	w     *world
	step  int64
	state []byte
	slow  time.Duration // duration of applying an update
	ctx   context.Context
}

// fetch returns a newcomer's state, loaded from a snapshot.
func fetch(ctx context.Context, w *world) *copyOf {
	w.t.Helper()
	s, err := Fetch(ctx, w, w.options())
	w.fetched(s, err)
	state, _ := io.ReadAll(s.Reader())
	return &copyOf{w: w, step: s.Step, state: state, ctx: ctx}
}

// apply is Following.Apply. It checks the order.
func (c *copyOf) apply(step int64, update []byte) error {
	if step != c.step+1 {
		c.w.t.Errorf("update of step %d after step %d", step, c.step)
	}
	if err := pause.For(c.ctx, c.slow); err != nil {
		return err
	}
	fold(c.state, update)
	c.step = step
	return nil
}

// check compares the state with the job's.
func (c *copyOf) check() {
	c.w.t.Helper()
	if !bytes.Equal(c.state, c.w.at(c.step)) {
		c.w.t.Errorf("the state after step %d is not that of the job", c.step)
	}
}

// committed returns the last step of the job.
func (w *world) committed() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step
}

func TestFollow(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		c := fetch(ctx, w)
		_ = pause.For(ctx, 3*time.Second) // duration of loading
		why := errors.New("let in")
		following, stop := context.WithTimeoutCause(ctx, 20*time.Second, why)
		defer stop()
		var levels []bool
		err := Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply, Level: func(at int64, level bool) {
			if at != c.step || w.committed()-at > 1 {
				t.Errorf("level at step %d, with the state at %d and the job at %d", at, c.step, w.committed())
			}
			levels = append(levels, level)
		}})
		if !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		c.check()
		if len(levels) != 1 || !levels[0] || w.committed()-c.step > 1 {
			t.Errorf("levels %v, state at step %d of %d", levels, c.step, w.committed())
		}
	})
}

// Three of four donors fail, one every seven seconds. Follow continues with another donor.
func TestFollowChangesDonors(t *testing.T) {
	faults := map[string]func(n *node){
		"dies":         func(n *node) { n.kill() },
		"is reset":     func(n *node) { n.donor.Reset(n.donor.at.Load()) },
		"falls silent": func(n *node) { n.mu.Lock(); n.limit = 1; n.mu.Unlock() },
		"sends garbage": func(n *node) {
			n.mu.Lock()
			n.damage = func(_, b []byte) { b[len(b)-1]++ }
			n.mu.Unlock()
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			run(t, four, func(ctx context.Context, w *world) {
				c := fetch(ctx, w)
				following, stop := context.WithTimeout(ctx, 40*time.Second)
				defer stop()
				go func() {
					for i := range 3 {
						_ = pause.For(following, 7*time.Second)
						fault(w.nodes[i])
					}
				}()
				err := Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				c.check()
				if w.committed()-c.step > 1 {
					t.Errorf("state at step %d of %d", c.step, w.committed())
				}
			})
		})
	}
}

// If none of the donors in use answers, Follow uses other donors.
func TestFollowLeavesSilentDonors(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		c := fetch(ctx, w)
		following, stop := context.WithTimeout(ctx, 20*time.Second)
		defer stop()
		o := w.options()
		o.MaxDonors = 1
		o.Donors = func() []string { return []string{"nobody", "donor1", "nobody else"} }
		level := false
		err := Follow(following, w, o, Following{After: c.step, Apply: c.apply, Level: func(_ int64, l bool) { level = l }})
		if !errors.Is(err, context.DeadlineExceeded) || !level {
			t.Errorf("level %v, error %v", level, err)
		}
		c.check()
	})
}

// Updates with a false hash, and updates of another step, are not applied.
func TestFollowRefusesWrongUpdates(t *testing.T) {
	one := func(t *testing.T) *world { return newWorld(t, 1, 1<<20, Config{}) }
	for name, damage := range map[string]func(w *world, b []byte){
		"bytes": func(w *world, b []byte) {
			if len(b) == w.upd {
				b[0]++
			}
		},
		"step": func(_ *world, b []byte) {
			if bytes.HasPrefix(b, []byte(`{"step":`)) {
				b[bytes.IndexByte(b, ',')-1] ^= 1 // changes a digit
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, one, func(ctx context.Context, w *world) {
				c := fetch(ctx, w)
				before := c.step
				w.nodes[0].mu.Lock()
				w.nodes[0].damage = func(_, b []byte) { damage(w, b) }
				w.nodes[0].mu.Unlock()
				following, stop := context.WithTimeout(ctx, 5*time.Second)
				defer stop()
				err := Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply})
				if !errors.Is(err, context.DeadlineExceeded) || c.step != before {
					t.Errorf("error %v, state at step %d, before %d", err, c.step, before)
				}
			})
		})
	}
}

// If steps are far shorter than a round trip, a newcomer is always some steps behind, and still
// counts as level.
func TestFollowShortSteps(t *testing.T) {
	run(t, func(t *testing.T) *world {
		w := four(t)
		w.size, w.upd, w.every = 10_000, 100, 500*time.Microsecond
		return w
	}, func(ctx context.Context, w *world) {
		c := fetch(ctx, w)
		following, stop := context.WithTimeout(ctx, 2*time.Second)
		defer stop()
		level := false
		_ = Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply, Level: func(_ int64, l bool) { level = l }})
		c.check()
		if !level {
			t.Error("not level")
		}
	})
}

func TestNeverLevel(t *testing.T) {
	for _, c := range []struct {
		name string
		log  int64
		slow time.Duration
		gone bool
	}{
		{"the link is too slow", 1 << 30, 0, false},
		{"applying is too slow", 1 << 30, 300 * time.Millisecond, false},
		{"the log is too small", 1 << 20, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T) *world {
				w := newWorld(t, 2, linkRate, Config{LogBytes: c.log})
				w.size, w.upd = 256<<10, 200<<10 // an update every 100 ms needs twice the rate of a link
				if c.slow > 0 {
					w.upd = 1000
				}
				return w
			}, func(ctx context.Context, w *world) {
				cp := fetch(ctx, w)
				cp.slow = c.slow
				err := Follow(ctx, w, w.options(), Following{After: cp.step, Apply: cp.apply, Level: func(at int64, level bool) {
					if at > 20 && level {
						t.Errorf("level at step %d", at)
					}
				}})
				var never *NeverLevelError
				if !errors.Is(err, ErrNeverLevel) || !errors.As(err, &never) {
					t.Fatalf("error %v", err)
				}
				if never.Gone != c.gone || never.Behind < 2 || !c.gone && never.Needed < 1.3*never.Measured {
					t.Errorf("%+v", never)
				}
				t.Log(err)
				cp.check()
			})
		})
	}
}

// A donor with a link that is too slow is replaced by a faster one.
func TestFollowLeavesSlowDonor(t *testing.T) {
	run(t, func(t *testing.T) *world {
		w := four(t)
		w.upd = 50 << 10
		return w
	}, func(ctx context.Context, w *world) {
		c := fetch(ctx, w)
		w.nodes[0].link.rate = linkRate / 4
		following, stop := context.WithTimeout(ctx, 30*time.Second)
		defer stop()
		level := false
		err := Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply, Level: func(_ int64, l bool) { level = l }})
		if !errors.Is(err, context.DeadlineExceeded) || !level {
			t.Errorf("level: %v, error %v", level, err)
		}
		c.check()
	})
}

func TestFollowErrorOfApply(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		c := fetch(ctx, w)
		bad := errors.New("bad update")
		err := Follow(ctx, w, w.options(), Following{After: c.step, Apply: func(int64, []byte) error { return bad }})
		if !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
	})
}

// With Keep the donors still have the updates after a minute of loading, without Keep they do not.
func TestKeep(t *testing.T) {
	for _, keep := range []bool{true, false} {
		run(t, four, func(ctx context.Context, w *world) {
			c := fetch(ctx, w)
			load := func() error { return pause.For(ctx, time.Minute) }
			if keep {
				w.check(Keep(ctx, w, w.options(), c.step, load))
			} else {
				w.check(load())
			}
			following, stop := context.WithTimeout(ctx, 10*time.Second)
			defer stop()
			err := Follow(following, w, w.options(), Following{After: c.step, Apply: c.apply})
			if gone := errors.Is(err, ErrNeverLevel); gone == keep {
				t.Errorf("kept: %v, error %v", keep, err)
			}
			c.check()
		})
	}
}

// A member one step behind gets that step while the state rests.
func TestFollowAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, linkRate, Config{})
		for _, n := range w.nodes {
			n.donor.Rest(true)
		}
		c := &copyOf{w: w, step: w.step, state: w.at(w.step), ctx: t.Context()}
		w.commit()
		ctx, cancel := context.WithCancel(t.Context())
		var at atomic.Int64
		_ = Follow(ctx, w, w.options(), Following{After: c.step, Apply: c.apply, Level: func(step int64, _ bool) {
			if at.Store(step); step == w.step {
				cancel()
			}
		}})
		cancel()
		if at.Load() != w.step {
			t.Errorf("level at step %d of %d", at.Load(), w.step)
		}
		c.check()
	})
}
