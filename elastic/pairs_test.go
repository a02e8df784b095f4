package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// together returns the time of the first view with both peers; zero if there is none.
func (r *rig) together(a, b elastic.ID) time.Time {
	for _, e := range r.sink.of("view") {
		if m := e.Body.(event.View).Members; slices.Contains(m, a.Short()) && slices.Contains(m, b.Short()) {
			return e.Time
		}
	}
	return time.Time{}
}

// If two newcomers join at the same time and cannot connect to each other, one of them is admitted.
// The log names the reason why the other one waits, and that one is admitted as soon as the two can
// connect. No member is lost.
func TestNewcomersApart(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(3, simnet.Config{Seed: seed, Link: simnet.Link{Delay: time.Millisecond, Lag: 5 * time.Millisecond}})
			r.until, r.pause = 250, 10*oneStep
			a, b := elastic.Member{ID: "newcomer-a", Index: 3}, elastic.Member{ID: "newcomer-b", Index: 4}
			const apart = 10 * time.Second
			begun := time.Now()
			r.during = func(ctx context.Context, r *rig) {
				after(30 * oneStep)
				r.net.Cut(a.ID, b.ID)
				r.net.Cut(b.ID, a.ID)
				healed := time.AfterFunc(apart, r.net.Heal)
				defer healed.Stop()
				var both sync.WaitGroup
				for _, self := range []elastic.Member{a, b} {
					both.Go(func() {
						if l, err := r.newcomer(ctx, self); err != nil || l.sizes[5] < 50 {
							t.Errorf("%s: %v, %+v", self.ID, err, l)
						}
					})
				}
				both.Wait()
			}
			if err := errors.Join(r.run(t)...); err != nil {
				t.Fatal(err)
			}
			if lost := r.sink.of("lost"); len(lost) > 0 {
				t.Errorf("%v", lost)
			}
			if at := r.together(a.ID, b.ID).Sub(begun); at < apart || at > apart+5*time.Second {
				t.Errorf("they are in one view after %v", at)
			}
			for _, e := range r.sink.of("join") {
				if at := e.Time.Sub(begun); at > 3*time.Second && at < apart {
					t.Errorf("one of them was admitted after %v", at)
				}
			}
			reasons := r.parkings()
			if len(reasons) != 1 || !strings.HasPrefix(reasons[0], "the newcomer and wcomer-") || !strings.Contains(reasons[0], " cannot connect: ") {
				t.Errorf("parked: %q", reasons)
			}
		})
	}
}

// Many newcomers, each on a host of its own, join at the same time. They connect to each other
// first, and are admitted with few views.
func TestNewcomersMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 16
		r := newRig(2, simnet.Config{Link: simnet.Link{Delay: 10 * time.Millisecond}})
		r.until, r.pause = 200, 5*oneStep
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					l, err := r.newcomer(ctx, elastic.Member{ID: elastic.ID(fmt.Sprintf("comer-%02d", i)), Index: 3 + i})
					if err != nil || l.sizes[2+many] < 80 {
						t.Errorf("newcomer %d: %v, %+v", i, err, l)
					}
				})
			}
			all.Wait()
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		views := make(map[uint64]bool)
		for _, e := range r.sink.of("view") {
			if e.Body.(event.View).Reason == "join" {
				views[e.Epoch] = true
			}
		}
		if len(views) > 4 || len(r.parkings()) > 0 {
			t.Errorf("they came in %d views; parked for %q", len(views), r.parkings())
		}
	})
}
