package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// guarded returns a rig whose members admit a newcomer only by a grant: its key is the part of the
// newcomer's ID before the first "-".
func guarded(n int) *rig {
	r := newRig(n, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
	r.groups = make([]*elastic.Group, n)
	r.adjust = func(i int, cfg *elastic.Config) {
		cfg.Started = func(g *elastic.Group) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.groups[i] = g
		}
		cfg.Entry = entryOf(func() *elastic.Group { return r.group(i) })
	}
	r.adjustNewcomer = func(cfg *elastic.Config) {
		var own atomic.Pointer[elastic.Group]
		cfg.Started = func(g *elastic.Group) { own.Store(g) }
		cfg.Entry = entryOf(own.Load)
	}
	return r
}

// group returns the group of member i.
func (r *rig) group(i int) *elastic.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[i]
}

// entryOf returns Config.Entry for the member whose group the function group returns.
func entryOf(group func() *elastic.Group) func(elastic.ID) (elastic.Entry, error) {
	return func(id elastic.ID) (elastic.Entry, error) {
		key, _, _ := strings.Cut(string(id), "-")
		v := group().View()
		g, ok := v.Grant(elastic.ID(key))
		switch {
		case slices.Contains(v.Barred, id):
			return elastic.Entry{}, errors.New("kicked")
		case !ok:
			return elastic.Entry{}, fmt.Errorf("no such grant: %w", elastic.ErrNotYet)
		case !g.Left():
			return elastic.Entry{}, errors.New("used up or revoked")
		}
		return elastic.Entry{By: g.Key}, nil
	}
}

// Of many newcomers that ask all members at once, exactly as many are admitted as the grant has
// uses, even though the issuer of the grant is killed meanwhile. The others are refused with a
// reason.
func TestUsesAreCounted(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := guarded(4)
			r.net.SetLink(simnet.Any, simnet.Any, simnet.Link{Delay: time.Millisecond, Lag: time.Duration(seed) * 3 * time.Millisecond, Loss: float64(seed) * 0.03, Duplicate: 0.05, Reorder: 0.05}, simnet.Control)
			var in, refused int
			r.during = func(ctx context.Context, r *rig) {
				after(20 * oneStep)
				if err := r.group(0).Admin().Issue(ctx, elastic.Grant{Key: "t", Issuer: "member0", Uses: 2}); err != nil {
					t.Error(err)
				}
				var all sync.WaitGroup
				for i := range 6 {
					all.Go(func() {
						_, err := r.newcomer(ctx, elastic.Member{ID: elastic.ID(fmt.Sprintf("t-%d", i)), Index: 9})
						r.mu.Lock()
						defer r.mu.Unlock()
						switch {
						case err == nil:
							in++
						case errors.Is(err, elastic.ErrRefused) && strings.Contains(err.Error(), "used up"):
							refused++
						default:
							t.Error(err)
						}
					})
				}
				after(time.Duration(seed) * 10 * time.Millisecond)
				r.net.Kill("member0")
				all.Wait()
			}
			errs := r.run(t)
			if err := errors.Join(errs[1:]...); err != nil {
				t.Fatal(err)
			}
			if in != 2 || refused != 4 {
				t.Errorf("seed %d: %d are in, %d were refused", seed, in, refused)
			}
		})
	}
}

// A revoked grant admits no further peers; peers that it has admitted stay members.
func TestRevokedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guarded(3)
		var first *loop
		r.during = func(ctx context.Context, r *rig) {
			after(20 * oneStep)
			var all sync.WaitGroup
			defer all.Wait()
			if err := r.group(0).Admin().Issue(ctx, elastic.Grant{Key: "t", Issuer: "member0"}); err != nil {
				t.Error(err)
			}
			all.Go(func() {
				var err error
				if first, err = r.newcomer(ctx, elastic.Member{ID: "t-early", Index: 9}); err != nil {
					t.Error(err)
				}
			})
			after(100 * oneStep)
			if err := r.group(2).Admin().Revoke(ctx, "t"); err != nil {
				t.Error(err)
			}
			if err := r.group(1).Admin().Revoke(ctx, "unknown"); err == nil {
				t.Error("a grant was revoked that there is not")
			}
			if _, err := r.newcomer(ctx, elastic.Member{ID: "t-late", Index: 9}); !errors.Is(err, elastic.ErrRefused) {
				t.Errorf("the late one: %v", err)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if first.sizes[4] < 200 {
			t.Errorf("groups of %v", first.sizes)
		}
	})
}

// A kicked member is out within two seconds, whatever its rank, and whether it responds or not. It
// cannot join again, and no newcomer can join by a grant that it issued. The job goes on.
func TestKick(t *testing.T) {
	for victim := range 4 {
		for _, stopped := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := guarded(4)
				id := r.members[victim].ID
				by := (victim + 1) % 4
				var begin time.Time
				r.during = func(ctx context.Context, r *rig) {
					after(20 * oneStep)
					if err := r.group(victim).Admin().Issue(ctx, elastic.Grant{Key: "t", Issuer: id}); err != nil {
						t.Error(err)
					}
					if stopped {
						r.net.Stop(id)
					}
					begin = time.Now()
					if err := r.group(by).Admin().Kick(ctx, id); err != nil {
						t.Error(err)
					}
					if _, err := r.newcomer(ctx, elastic.Member{ID: "t-1", Index: 9}); !errors.Is(err, elastic.ErrRefused) {
						t.Errorf("by a grant of the kicked: %v", err)
					}
					after(100 * oneStep)
					r.net.Continue(id)
				}
				errs := r.run(t)
				for i, err := range errs {
					if i != victim && err != nil || i == victim && !errors.Is(err, elastic.ErrKicked) {
						t.Errorf("victim %d: member %d: %v", victim, i, err)
					}
				}
				if d := r.outAfter(t, id, begin, 3); d > 2*time.Second {
					t.Errorf("victim %d: out after %v", victim, d)
				}
				if fmt.Sprint(r.lives) != "[0 0 0 0]" {
					t.Errorf("new lives %v", r.lives)
				}
				left := r.sink.of("leave")
				if len(left) == 0 || left[0].Body.(event.Leave).Reason != "kicked" {
					t.Errorf("%+v", left)
				}
			})
		}
	}
}

// A peer cannot kick itself, and a peer that is no member cannot kick at all.
func TestKickRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guarded(2)
		r.during = func(ctx context.Context, r *rig) {
			after(20 * oneStep)
			if err := r.group(0).Admin().Kick(ctx, "member0"); err == nil {
				t.Error("it kicked itself")
			}
			if err := new(elastic.Group).Admin().Kick(ctx, "member0"); err == nil {
				t.Error("kicked by no group")
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that was put out by mistake comes back once under another ID, by the grant of its former
// entry. The grant counts no further use.
func TestComesBackAsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guarded(4)
		r.until, r.pause = 100, 100*time.Millisecond
		adjust := r.adjust
		r.adjust = func(i int, cfg *elastic.Config) {
			adjust(i, cfg)
			cfg.Entry = func(id elastic.ID) (elastic.Entry, error) {
				old, _, _ := strings.Cut(string(id), ".")
				e, ok := r.group(i).Admin().Returns(func(id elastic.ID) bool { return string(id) == old })
				if !ok {
					return e, errors.New("it was no member")
				}
				return e, nil
			}
		}
		r.during = func(ctx context.Context, r *rig) {
			after(1500 * time.Millisecond)
			r.net.Stop("member2")
			after(3 * time.Second)
			r.net.Continue("member2")
			after(2 * time.Second)
			if _, err := r.newcomer(ctx, elastic.Member{ID: "member2.again", Index: 9}); !errors.Is(err, elastic.ErrRefused) {
				t.Errorf("twice: %v", err)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(r.lives) != "[0 0 1 0]" || r.loops[2].sizes[4] < 20 {
			t.Errorf("lives %v, groups of %v", r.lives, r.loops[2].sizes)
		}
	})
}
