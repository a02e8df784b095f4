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

// A member whose program hangs steps down after a while, and the others go on without it; the log
// names the member. A member that has reported a reason may take any time.
func TestMakeWay(t *testing.T) {
	const hang = 5 * time.Minute
	for _, busy := range []string{"", "evaluating"} {
		t.Run("busy="+busy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers(3)
				begun := time.Now()
				errs := p.each(t, func(ctx context.Context, i int) error {
					g, err := elastic.Join(ctx, p.config(i, p.members))
					if err != nil {
						return err
					}
					l := &loop{g: g, state: new(replayer), until: 50, pause: oneStep}
					l.before = func(step int64, _ uint64) {
						if i == 1 && step == 10 {
							if busy != "" {
								defer g.Busy(busy)()
							}
							after(hang)
						}
					}
					g.Sessions().Hold(l.state, nil)
					err = l.run(ctx)
					took := time.Since(begun)
					switch {
					case busy == "" && i == 1:
						err = want(err, elastic.ErrFenced)
					case busy != "" && l.sizes[3] != 50:
						err = fmt.Errorf("groups of %v: %w", l.sizes, err)
					case busy == "" && (l.sizes[2] != 41 || took < 30*time.Second || took > 2*time.Minute):
						err = fmt.Errorf("groups of %v in %v: %w", l.sizes, took, err)
					}
					return errors.Join(err, g.Close())
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				checkStalls(t, p, busy)
				for _, e := range p.sink.of("leave") {
					if l := e.Body.(event.Leave); busy == "" && l.Who == p.members[1].ID.Short() && l.Reason != "stalled" {
						t.Errorf("peer %d calls the member that makes way %q", e.Index, l.Reason)
					}
				}
			})
		})
	}
}

// checkStalls checks that all logged stalls name only member 1, with the reason busy if it is not
// empty.
func checkStalls(t *testing.T, p *peers, busy string) {
	t.Helper()
	all := p.sink.of("stall")
	if len(all) < 2 {
		t.Errorf("stalls: %v", all)
	}
	for _, e := range all {
		s := e.Body.(event.Stall)
		if s.Culprit != p.members[1].ID.Short() || busy != "" && s.Phase != busy {
			t.Errorf("%+v", s)
		}
	}
}

// A member whose program is stopped steps down: the others go on without it within a second, and say why it has left.
// When its program goes on, it comes back as a newcomer with the state of the others.
func TestStepDown(t *testing.T) {
	const stopped, why = 5 * time.Second, "its program is stopped"
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		var last time.Time // when member 0 has begun its last step
		var longest time.Duration
		runs := make(chan struct{}) // closed when the program of member 1 goes on
		errs := p.each(t, func(ctx context.Context, i int) error {
			cfg := p.config(i, p.members)
			cfg.Reopen = func(context.Context) (elastic.Endpoint, error) {
				<-runs
				m := p.members[i]
				m.ID += "-again"
				return p.network.Endpoint(m), nil
			}
			g, err := elastic.Join(ctx, cfg)
			if err != nil {
				return err
			}
			l := &loop{g: g, state: new(replayer), until: 400, pause: 20 * time.Millisecond}
			l.before = func(step int64, epoch uint64) {
				if i == 0 {
					if now := time.Now(); !last.IsZero() && now.Sub(last) > longest {
						longest = now.Sub(last)
					}
					last = time.Now()
				}
				if i == 1 && step == 10 && epoch == 1 {
					g.StepDown(why)
					after(stopped)
					close(runs)
				}
			}
			g.Sessions().Hold(l.state, nil)
			err = l.run(ctx)
			if err == nil && (l.sizes[2] == 0 || l.state.Step() != 400) && i != 1 || l.sizes[3] < 100 {
				err = fmt.Errorf("groups of %v in %d steps", l.sizes, l.state.Step())
			}
			return errors.Join(err, l.state.right(), g.Close())
		})
		if err := errors.Join(errs...); err != nil || longest > time.Second {
			t.Fatalf("%v without a step: %v", longest, err)
		}
		gone := p.members[1].ID.Short()
		var reasons []string
		for _, e := range p.sink.of("leave") {
			if l := e.Body.(event.Leave); l.Who == gone {
				reasons = append(reasons, l.Reason)
			}
		}
		if len(reasons) != 2 || reasons[0] != "stepped down: "+why || reasons[1] != reasons[0] {
			t.Errorf("member 1 has left for %q", reasons)
		}
		for _, e := range p.sink.of("fenced") {
			if f := e.Body.(event.Fenced); f.Who == gone && f.Reason != why {
				t.Errorf("member 1 is out because %q", f.Reason)
			}
		}
	})
}

// A member that is alone does not step down, and neither does a peer that is no member.
func TestStepDownAlone(t *testing.T) {
	p := newPeers(1)
	for _, err := range p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
		g.StepDown("its program is stopped")
		one := []int64{1}
		return collective.AllReduce(ctx, s.Comm, one, one, collective.Sum[int64])
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	new(elastic.Group).StepDown("")
}
