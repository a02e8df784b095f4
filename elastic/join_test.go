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

// oneStep is the duration of a step.
const oneStep = 10 * time.Millisecond

// newcomer joins the job of p and counts steps with the members.
func (p *peers) newcomer(ctx context.Context, self elastic.Member, until int64, settings ...elastic.Setting) (*loop, error) {
	g, err := elastic.Join(ctx, p.late(self, p.members[0], p.members[len(p.members)-1]))
	if err != nil {
		return nil, err
	}
	l := &loop{g: g, state: new(replayer), until: until, pause: oneStep}
	g.Sessions().Hold(l.state, settings)
	return l, errors.Join(l.run(ctx), g.Close())
}

// A newcomer gets the state and counts from then on; the members lose no step.
func TestNewcomer(t *testing.T) {
	for n := 1; n <= 3; n++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(n)
			var joining sync.WaitGroup
			begun := make([]int, n)
			loops := p.run(t, 100, func(int) bool { return false }, func(i int, step int64) {
				begun[i]++
				if i != 0 || step != 20 {
					return
				}
				joining.Go(func() {
					l, err := p.newcomer(t.Context(), elastic.Member{ID: "newcomer", Index: 9}, 100)
					if err != nil || l.state.right() != nil || l.sizes[n+1] < 50 {
						t.Errorf("n=%d: the newcomer: %v, %v", n, err, l)
					}
				})
			})
			joining.Wait()
			for i, l := range loops {
				if l.sizes[n] < 20 || l.sizes[n+1] < 50 || begun[i] != 100 {
					t.Errorf("n=%d: member %d began %d steps, and did them with groups of %v", n, i, begun[i], l.sizes)
				}
			}
		})
	}
}

// A newcomer that is some steps behind when it is admitted, because its link is slow, receives the
// updates of these steps before its first common step.
func TestNewcomerSomeStepsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		self := elastic.Member{ID: "newcomer", Index: 3}
		r.net.SetLink(simnet.Any, self.ID, simnet.Link{Delay: 35 * time.Millisecond}, simnet.Bulk)
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			l, err := r.newcomer(ctx, self)
			if err != nil || l.state.(*replayer).loads != 1 || l.sizes[4] < 100 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		for _, e := range r.sink.of("resync") {
			var had, want int
			if n, _ := fmt.Sscanf(e.Body.(event.Resync).Reason, "was at step %d, others at %d", &had, &want); n == 2 && want-had >= 2 {
				return
			}
		}
		t.Errorf("it was not some steps behind: %v", r.sink.of("resync"))
	})
}

// newcomer joins the job of r and counts steps with the members.
func (r *rig) newcomer(ctx context.Context, self elastic.Member) (*loop, error) {
	cfg := elastic.Config{Endpoint: r.net.Endpoint(self), Sink: r.sink, Contacts: func() []elastic.Member { return r.members }}
	if r.adjustNewcomer != nil {
		r.adjustNewcomer(&cfg)
	}
	g, err := elastic.Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l := &loop{g: g, state: new(replayer), until: r.until, pause: r.pause}
	g.Sessions().Hold(l.state, nil)
	return l, errors.Join(l.run(ctx), l.state.right(), g.Close())
}

// The members receive a new view at different times, which may be several steps apart. They still
// leave the earlier session together, and begin no step twice.
func TestNewsComeUnevenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.net.SetLink(simnet.Any, r.members[1].ID, simnet.Link{Delay: 7 * oneStep}, simnet.Control)
		begun := make([]int64, len(r.members))
		r.begun = func(i int, l *loop) { l.before = func(int64, uint64) { begun[i]++ } }
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			if _, err := r.newcomer(ctx, elastic.Member{ID: "newcomer", Index: 3}); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		for i, n := range begun {
			if n != r.until {
				t.Errorf("member %d began %d steps for %d", i, n, r.until)
			}
		}
	})
}

// A newcomer that cannot reach a member is not admitted, because it would be put out again. The log
// names the member, and the newcomer waits until it can connect. The members lose no session
// meanwhile.
func TestNewcomerApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.until = 2500
		self := elastic.Member{ID: "newcomer", Index: 3}
		const apart = 15 * time.Second
		r.during = func(ctx context.Context, r *rig) {
			after(30 * oneStep)
			r.net.Cut(r.members[1].ID, self.ID)
			r.net.Cut(self.ID, r.members[1].ID)
			healed := time.AfterFunc(apart, r.net.Heal)
			defer healed.Stop()
			l, err := r.newcomer(ctx, self)
			if err != nil || l.sizes[4] < 100 {
				t.Errorf("the newcomer: %v, %+v", err, l)
			}
		}
		begun := time.Now()
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if lost := r.sink.of("lost"); len(lost) > 0 {
			t.Errorf("%v", lost)
		}
		for _, e := range r.sink.of("join") {
			if at := e.Time.Sub(begun); at < apart || at > apart+5*time.Second {
				t.Errorf("%+v after %v", e, at)
			}
		}
		parked := r.sink.of("parked")
		if len(parked) != 1 || !strings.HasPrefix(parked[0].Body.(event.Parked).Reason, "the newcomer and member1 cannot connect: ") {
			t.Errorf("parked: %v", parked)
		}
	})
}

// If two members lose only the connection to each other, one of them is put out, and joins again
// when the connection works again.
func TestPairApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}})
		r.until = 2500
		const apart = 16 * time.Second
		a, b := r.members[1].ID, r.members[3].ID
		r.during = func(_ context.Context, r *rig) {
			after(time.Second)
			r.net.Cut(a, b)
			r.net.Cut(b, a)
			after(time.Second)
			for _, pair := range [][2]elastic.ID{{a, "member3.1"}, {"member1.1", b}} { // the IDs that the members take next
				r.net.Cut(pair[0], pair[1])
				r.net.Cut(pair[1], pair[0])
			}
			after(apart - 2*time.Second)
			r.net.Heal()
		}
		begun := time.Now()
		if err := errors.Join(r.run(t)...); err != nil {
			t.Fatal(err)
		}
		if r.lives[1]+r.lives[3] != 1 {
			t.Errorf("new lives %v", r.lives)
		}
		for _, e := range r.sink.of("join") {
			if at := e.Time.Sub(begun); at < apart {
				t.Errorf("it was let in after %v, while they were apart: %+v", at, e)
			}
		}
	})
}

// A newcomer with a different setting is refused with an error that names the setting.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		var joining sync.WaitGroup
		p.run(t, 50, func(int) bool { return false }, func(i int, step int64) {
			if i == 0 && step == 10 {
				joining.Go(func() {
					_, err := p.newcomer(t.Context(), elastic.Member{ID: "newcomer"}, 50, elastic.Setting{Name: "batch", Value: "7"})
					if !errors.Is(err, elastic.ErrRefused) || !strings.Contains(err.Error(), "batch is 7") {
						t.Errorf("got %v", err)
					}
				})
			}
		})
		joining.Wait()
	})
}

// A member that leaves is out at a boundary; no step is lost or repeated.
func TestLeave(t *testing.T) {
	for leaver := range 3 {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(3)
			errs := p.each(t, func(ctx context.Context, i int) error {
				g, err := elastic.Join(ctx, p.config(i, p.members))
				if err != nil {
					return err
				}
				l := &loop{g: g, state: new(replayer), until: 50, pause: oneStep}
				l.before = func(step int64, _ uint64) {
					if i == leaver && step == 10 {
						g.Leave()
						g.Leave()
					}
				}
				g.Sessions().Hold(l.state, nil)
				err = l.run(ctx)
				if i == leaver {
					if l.state.Step() < 10 || l.state.Step() > 15 {
						return fmt.Errorf("left after step %d", l.state.Step())
					}
					return errors.Join(want(err, elastic.ErrLeft), g.Close())
				}
				if l.sizes[3]+l.sizes[2] != 50 || l.sizes[2] < 30 {
					return fmt.Errorf("steps with groups of %v", l.sizes)
				}
				return errors.Join(err, l.state.right(), g.Close())
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("leaver %d: %v", leaver, err)
			}
			if lost := p.sink.of("lost"); len(lost) > 0 {
				t.Errorf("leaver %d: %v", leaver, lost)
			}
		})
	}
}

// All members but one die at once, and the launcher cannot report it. The last member waits, gives
// up after RejoinTimeout, and its state is unchanged.
func TestQuorumLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		p.adjust = func(_ int, cfg *elastic.Config) { cfg.RejoinTimeout = 5 * time.Second }
		errs := p.each(t, func(ctx context.Context, i int) error {
			g, err := elastic.Join(ctx, p.config(i, p.members))
			if err != nil {
				return err
			}
			l := &loop{g: g, state: new(replayer), until: 50, pause: oneStep}
			l.before = func(step int64, _ uint64) {
				if i > 0 && step == 10 {
					p.network.Kill(p.members[i].ID)
				}
			}
			g.Sessions().Hold(l.state, nil)
			waits := 0
			g.Sessions().OnQuorumLost(func() { waits++ })
			err = l.run(ctx)
			if i > 0 {
				return g.Close()
			}
			if waits != 1 || l.state.Step() != 9 {
				return fmt.Errorf("waited %d times, step %d", waits, l.state.Step())
			}
			return errors.Join(want(err, elastic.ErrQuorum), l.state.right(), g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, e := range p.sink.of("quorum") {
			if e.Index == 0 {
				states = append(states, e.Body.(event.Quorum).State)
			}
		}
		if fmt.Sprint(states) != "[lost waiting gave-up]" {
			t.Errorf("events %v", states)
		}
	})
}
