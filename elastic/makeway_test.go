package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
