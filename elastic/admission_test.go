package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// world models a job whose steps take work/(sum of speeds) + members*tax.
type world struct {
	work, tax float64
	mu        sync.Mutex
	speeds    map[elastic.ID]int64
	trials    int
	notYet    int // number of requests that the judge answers with ErrNotYet
}

func (w *world) step(ids []elastic.ID, others ...elastic.Candidate) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := int64(0)
	for _, id := range ids {
		sum += w.speeds[id]
	}
	for _, c := range others {
		sum += c.Speed
	}
	return w.work/float64(sum) + float64(len(ids)+len(others))*w.tax
}

// judging is a State of the job that world models. It implements Judge and Trier.
type judging struct {
	replayer
	w    *world
	self elastic.ID
}

func (j *judging) Admit(a elastic.Application) error {
	j.w.mu.Lock()
	wait := j.w.notYet > 0
	j.w.notYet--
	j.w.mu.Unlock()
	if wait {
		return fmt.Errorf("%w: no step was made", elastic.ErrNotYet)
	}
	now := j.w.step(a.Members, a.Coming...)
	if then := j.w.step(a.Members, append(a.Coming, a.Candidate)...); then >= now {
		return fmt.Errorf("%.2f ms instead of %.2f", then, now)
	}
	return nil
}

func (j *judging) Trial(context.Context) (elastic.Candidate, error) {
	<-time.After(30 * time.Millisecond) // the duration of some steps
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.w.trials++
	return elastic.Candidate{Speed: j.w.speeds[j.self]}, nil
}

// judged returns a rig of n members of speed 10, whose states are of type judging.
func judged(n int) (*rig, *world) {
	r := newRig(n, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
	w := &world{work: 1000, tax: 1, speeds: make(map[elastic.ID]int64)}
	for _, m := range r.members {
		w.speeds[m.ID] = 10
	}
	r.begun = func(i int, l *loop) { l.state = &judging{w: w, self: r.members[i].ID} }
	return r, w
}

// come runs a newcomer of the given speed, which counts steps until the end of the job.
func (r *rig) come(ctx context.Context, w *world, id elastic.ID, speed int64) (*loop, error) {
	w.mu.Lock()
	w.speeds[id] = speed
	w.mu.Unlock()
	g, err := elastic.Join(ctx, elastic.Config{Endpoint: r.net.Endpoint(elastic.Member{ID: id, Index: 9}), Sink: r.sink,
		Contacts: func() []elastic.Member { return r.members }})
	if err != nil {
		return nil, err
	}
	l := &loop{g: g, state: &judging{w: w, self: id}, until: r.until, pause: r.pause}
	g.Sessions().Hold(l.state, nil)
	return l, errors.Join(l.run(ctx), l.state.right(), g.Close())
}

// admissions checks that every admission in the log made the step of w shorter. It returns the
// sizes of the views with a newcomer.
func (r *rig) admissions(t *testing.T, w *world) (sizes []int) {
	t.Helper()
	ids := make(map[string]elastic.ID)
	for id := range w.speeds {
		ids[id.Short()] = id
	}
	var before []elastic.ID
	epoch := uint64(0)
	for _, e := range r.sink.of("view") {
		if e.Epoch <= epoch {
			continue
		}
		epoch = e.Epoch
		var now []elastic.ID
		for _, m := range e.Body.(event.View).Members {
			now = append(now, ids[m])
		}
		if len(now) > len(before) && before != nil {
			sizes = append(sizes, len(now))
			if w.step(now) >= w.step(before) {
				t.Errorf("epoch %d: steps of %.2f ms with %v, %.2f with %v", epoch, w.step(now), now, w.step(before), before)
			}
		}
		before = now
	}
	return sizes
}

// parkings returns the logged reasons for parking.
func (r *rig) parkings() (reasons []string) {
	for _, e := range r.sink.of("parked") {
		reasons = append(reasons, e.Body.(event.Parked).Reason)
	}
	return reasons
}

// A newcomer that shortens the steps is admitted at once.
func TestFastNewcomerIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := judged(3)
		w.notYet = 3 // takes some tenths of a second, and adds nothing to the log
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			if l, err := r.come(ctx, w, "newcomer", 10); err != nil || l.sizes[4] < 250 || l.state.(*judging).applies == 0 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if got := r.parkings(); len(got) > 0 || w.trials != 1 {
			t.Errorf("parked for %q; %d trials", got, w.trials)
		}
		r.admissions(t, w)
	})
}

// A slow newcomer is parked, with a logged reason. It follows the job. When a member dies, the
// newcomer is admitted soon, without copying the state again.
func TestSlowNewcomerIsParkedUntilAMemberDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := judged(4)
		w.tax = 0.7 // four members need 27.8 ms for a step, and five 27.9 ms; three need 35.4 ms, and with the newcomer 35.1 ms
		r.until = 4000
		begun := r.begun
		r.begun = func(i int, l *loop) {
			begun(i, l)
			l.before = func(step int64, _ uint64) {
				if i == 2 && step == 2500 {
					r.net.Kill(r.members[i].ID)
				}
			}
		}
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			l, err := r.come(ctx, w, "slowcomer", 1)
			if err != nil || l.sizes[5] != 0 || l.sizes[4] < 1200 || l.state.(*judging).loads != 1 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		for i, err := range r.run(t) {
			if err != nil && i != 2 {
				t.Fatal(err)
			}
		}
		reasons := r.parkings()
		if len(reasons) != 1 || !strings.Contains(reasons[0], "instead of 27.80") {
			t.Errorf("parked for %q, want one reason", reasons)
		}
		// The newcomer has asked for 25 s with pauses of 1, 2, 4, 8 and 15 s, and once more when
		// the member was gone.
		if w.trials < 4 || w.trials > 8 {
			t.Errorf("%d trials", w.trials)
		}
		if got := r.admissions(t, w); len(got) != 1 || got[0] != 4 {
			t.Errorf("groups of %v after a join", got)
		}
	})
}

// If several newcomers ask at the same time, each of them is judged together with the newcomers
// that were admitted earlier.
func TestManyNewcomersAreJudgedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := judged(2)
		w.work, w.tax = 200, 1.2 // four members are best: they need 9.8 ms for a step, and five need 10.0 ms
		var all sync.WaitGroup
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			for i := range 5 {
				all.Go(func() {
					l, err := r.come(ctx, w, elastic.ID(fmt.Sprint("newcomer", i)), 10)
					if l != nil && l.sizes[5]+l.sizes[6]+l.sizes[7] > 0 {
						t.Errorf("the newcomer was in groups of %v, %v", l.sizes, err)
					}
				})
			}
			all.Wait()
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if got := r.admissions(t, w); len(got) == 0 || got[len(got)-1] != 4 {
			t.Errorf("groups of %v after joins, want 4 at last", got)
		}
	})
}

// A job with too few members admits newcomers without judging them.
func TestNeededNewcomerIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := judged(3)
		w.tax = 100
		r.adjust = func(_ int, cfg *elastic.Config) { cfg.MinPeers = 3 }
		begun := r.begun
		r.begun = func(i int, l *loop) {
			begun(i, l)
			l.before = func(step int64, _ uint64) {
				if i == 2 && step == 300 {
					r.net.Kill(r.members[i].ID)
				}
			}
		}
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			if l, err := r.come(ctx, w, "slowcomer", 1); err != nil || l.sizes[3] < 90 || l.sizes[4] != 0 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		for i, err := range r.run(t) {
			if err != nil && i != 2 {
				t.Fatal(err)
			}
		}
	})
}

// A parked peer can leave without an error at any peer.
func TestParkedPeerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := judged(2)
		w.tax = 100
		r.during = func(ctx context.Context, r *rig) {
			g, err := elastic.Join(ctx, elastic.Config{Endpoint: r.net.Endpoint(elastic.Member{ID: "newcomer"}), Sink: r.sink,
				Contacts: func() []elastic.Member { return r.members }})
			if err != nil {
				t.Error(err)
				return
			}
			g.Sessions().Hold(&judging{w: w, self: "newcomer"}, nil)
			stop := time.AfterFunc(2*time.Second, g.Leave)
			defer stop.Stop()
			_, err = g.Sessions().Next(ctx, 0)
			if err := errors.Join(want(err, elastic.ErrLeft), g.Close()); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if got := r.parkings(); len(got) != 1 {
			t.Errorf("parked for %q", got)
		}
	})
}
