package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// run lets every member count up to a step. The function before is called before each step and may
// kill a member. Killed members return errors, which are ignored.
func (p *peers) run(t *testing.T, until int64, dead func(i int) bool, before func(i int, step int64)) []*loop {
	loops := make([]*loop, len(p.members))
	errs := p.each(t, func(ctx context.Context, i int) error {
		g, err := elastic.Join(ctx, p.config(i, p.members))
		if err != nil {
			return err
		}
		l := &loop{g: g, state: new(replayer), until: until, pause: 10 * time.Millisecond,
			before: func(step int64, _ uint64) { before(i, step) }}
		loops[i] = l
		g.Sessions().Hold(l.state, nil)
		return errors.Join(l.run(ctx), g.Close())
	})
	for i, err := range errs {
		if dead(i) {
			continue
		}
		if err == nil {
			err = loops[i].state.right()
		}
		if err != nil {
			t.Fatalf("member %d: %v", i, err)
		}
	}
	return loops
}

// Any member may die at any step: the others go on without losing a step, and each logs the loss.
// The member that detected the loss logs the cause; the others may receive the new view first.
func TestKillOne(t *testing.T) {
	for victim := range 4 {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(4)
			loops := p.run(t, 20, func(i int) bool { return i == victim }, func(i int, step int64) {
				if i == victim && step == 8 {
					p.network.Kill(p.members[i].ID)
				}
			})
			for i, l := range loops {
				if i != victim && (l.sizes[4] < 6 || l.sizes[3] < 11 || l.sizes[4]+l.sizes[3] != 20) {
					t.Errorf("victim %d: member %d did steps with groups of %v", victim, i, l.sizes)
				}
			}
			lost := p.sink.of("lost")
			if len(lost) != 3 {
				t.Errorf("victim %d: events %v", victim, lost)
			}
			found := 0
			for _, e := range lost {
				l := e.Body.(event.Lost)
				if l.Who != p.members[victim].ID.Short() || l.Cause != "reset" && l.Cause != "" {
					t.Errorf("victim %d: %+v", victim, e)
				}
				if l.Cause != "" {
					found++
				}
			}
			if found == 0 {
				t.Errorf("victim %d: no member wrote the cause", victim)
			}
		})
	}
}

// Members die one after the other, down to the smallest number that majorities allow.
func TestKillInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(5)
		p.run(t, 40, func(i int) bool { return i < 3 }, func(i int, step int64) {
			if i < 3 && step == int64(8+8*i) {
				p.network.Kill(p.members[i].ID)
			}
		})
	})
}

// If a launcher reports the deaths, the remaining members go on, however many members died.
func TestCertainDeaths(t *testing.T) {
	for _, dead := range [][]int{{0}, {1, 2}, {0, 1, 2}, {0, 1, 3}} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 4
				if len(dead) == 1 {
					n = 2
				}
				p := newPeers(n)
				groups := make([]*elastic.Group, n)
				p.adjust = func(i int, cfg *elastic.Config) { cfg.Sole = true }
				isDead := make([]bool, n)
				for _, i := range dead {
					isDead[i] = true
				}
				p.launch(t, 30, groups, isDead, 10)
			})
		})
	}
}

// launch is like run, but a launcher reports each death to the survivors shortly after the death.
func (p *peers) launch(t *testing.T, until int64, groups []*elastic.Group, dead []bool, at int64) {
	errs := p.each(t, func(ctx context.Context, i int) error {
		g, err := elastic.Join(ctx, p.config(i, p.members))
		if err != nil {
			return err
		}
		groups[i] = g
		l := &loop{g: g, state: new(replayer), until: until, pause: 10 * time.Millisecond}
		l.before = func(step int64, _ uint64) {
			if dead[i] && step == at {
				p.network.Kill(p.members[i].ID)
				<-time.After(20 * time.Millisecond)
				for k, o := range groups {
					if !dead[k] {
						o.Admin().Dead(p.members[i].ID)
					}
				}
			}
		}
		g.Sessions().Hold(l.state, nil)
		err = errors.Join(l.run(ctx), g.Close())
		if dead[i] {
			return nil
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// If a member revokes a session for a reason of its own, a session of the same members follows and
// continues at the same step.
func TestRevokedByMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		errs := p.each(t, func(ctx context.Context, i int) error {
			g, err := elastic.Join(ctx, p.config(i, p.members))
			if err != nil {
				return err
			}
			state, revoked := new(replayer), false
			g.Sessions().Hold(state, nil)
			for epoch := uint64(0); state.step < 20; {
				s, err := g.Sessions().Next(ctx, epoch)
				if err != nil {
					return errors.Join(err, g.Close())
				}
				epoch = s.View.Epoch
				l := &loop{g: g, state: state, until: 20, pause: oneStep, sizes: make(map[int]int)}
				l.before = func(step int64, _ uint64) {
					if i == 1 && step == 10 && !revoked {
						revoked = true
						s.Comm.Revoke(errors.New("a reason of its own"))
					}
				}
				if err := l.session(ctx, s); err != nil && !errors.Is(err, collective.ErrRevoked) {
					return errors.Join(err, g.Close())
				}
			}
			return errors.Join(state.right(), g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if lost := p.sink.of("lost"); len(lost) > 0 {
			t.Errorf("%v", lost)
		}
	})
}
