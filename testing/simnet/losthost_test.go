package simnet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// hostsGroup is a group of members on several hosts, some of which may be lost.
type hostsGroup struct {
	crowd
	t       *testing.T
	rng     *rand.Rand
	members []elastic.Member
	all     sync.WaitGroup // the goroutines of the members
	stop    context.CancelFunc

	mu    sync.Mutex
	may   map[string]bool      // short IDs of the members that may be lost
	lost  []string             // short IDs of members that were lost although they must not be
	views map[string]time.Time // when a member had its first view without the members that may be lost
}

// startHosts starts a group with the given numbers of members on its hosts, and waits for a session.
// Members start within 100 ms, so their heartbeats come at different times in each seed.
func startHosts(t *testing.T, seed uint64, sizes []int) *hostsGroup {
	g := &hostsGroup{t: t, rng: rand.New(rand.NewPCG(seed, 0)), may: make(map[string]bool), views: make(map[string]time.Time)}
	g.net = simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: 100 * time.Microsecond, Lag: 2 * time.Millisecond}})
	for h, size := range sizes {
		for i := range size {
			host := fmt.Sprint("host", h)
			g.members = append(g.members, elastic.Member{ID: elastic.ID(fmt.Sprintf("m%04d", len(g.members))), Index: i, Host: host, Launcher: host})
		}
	}
	n := len(g.members)
	g.summed = make(chan int, 64*n)
	ctx, cancel := context.WithCancel(t.Context())
	g.stop = cancel
	for _, m := range g.members {
		late := g.random(100 * time.Millisecond)
		g.all.Go(func() {
			<-time.After(late)
			err := g.train(ctx, m, elastic.Config{Peers: g.members, Sink: g})
			if err != nil && ctx.Err() == nil && !g.mayLose(m) {
				t.Errorf("seed %d: %s: %v", seed, m.ID, err)
			}
		})
	}
	g.phase(t, "form", n, n, n)
	return g
}

// end ends all members.
func (h *hostsGroup) end() {
	h.stop()
	h.net.Heal()
	for _, m := range h.members {
		h.net.Continue(m.ID)
	}
	h.all.Wait()
	if err := h.net.Close(); err != nil {
		h.t.Error(err)
	}
}

// random returns a random duration below most.
func (h *hostsGroup) random(most time.Duration) time.Duration {
	return time.Duration(h.rng.Int64N(int64(most)))
}

// mayLose reports whether a member may be lost.
func (h *hostsGroup) mayLose(m elastic.Member) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.may[m.ID.Short()]
}

// lose permits the loss of these members.
func (h *hostsGroup) lose(members ...elastic.Member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range members {
		h.may[m.ID.Short()] = true
	}
}

// Emit records the losses and the views that members report which must not be lost.
func (h *hostsGroup) Emit(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.may[e.Peer] {
		return
	}
	switch body := e.Body.(type) {
	case event.Lost:
		if !h.may[body.Who] {
			h.lost = append(h.lost, body.Who)
		}
	case event.View:
		without := !slices.ContainsFunc(body.Members, func(id string) bool { return h.may[id] })
		if _, known := h.views[e.Peer]; len(h.may) > 0 && without && !known {
			h.views[e.Peer] = time.Now()
		}
	}
}

// last returns the time of the latest first view in h.views, and the members that were lost
// although they must not be.
func (h *hostsGroup) last() (at time.Time, lost []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.views {
		if t.After(at) {
			at = t
		}
	}
	return at, h.lost
}

// on returns the members on a host, and the others.
func (h *hostsGroup) on(host string) (here, others []elastic.Member) {
	for _, m := range h.members {
		if m.Host == host {
			here = append(here, m)
		} else {
			others = append(others, m)
		}
	}
	return here, others
}

// eachHostLayout runs a test in a bubble for seeds of groups of 32 members on three hosts and on
// eight. In the first two seeds, which make test runs, the faults are at host 0 and at host 1.
func eachHostLayout(t *testing.T, seeds uint64, run func(t *testing.T, seed uint64, sizes []int)) {
	for _, sizes := range [][]int{{11, 11, 10}, {4, 4, 4, 4, 4, 4, 4, 4}} {
		t.Run(fmt.Sprint(len(sizes), " hosts"), func(t *testing.T) {
			for seed := range seeds {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { run(t, seed, sizes) })
				})
			}
		})
	}
}

// A host does not receive, does not send, or both. All its members are put out within two seconds,
// at any phase of the heartbeats, even if the first proposers are on this host. No other member is
// lost.
func TestLostHostIsOut(t *testing.T) {
	for _, fault := range []struct {
		name          string
		hears, speaks bool
	}{{"black hole", false, false}, {"mute", true, false}, {"deaf", false, true}} {
		t.Run(fault.name, func(t *testing.T) {
			eachHostLayout(t, 4, func(t *testing.T, seed uint64, sizes []int) {
				g := startHosts(t, seed, sizes)
				<-time.After(3*time.Second + g.random(250*time.Millisecond))
				here, others := g.on(fmt.Sprint("host", seed%3))
				g.lose(here...)
				for _, m := range here {
					for _, o := range others {
						if !fault.speaks {
							g.net.Cut(m.ID, o.ID)
						}
						if !fault.hears {
							g.net.Cut(o.ID, m.ID)
						}
					}
				}
				cut := time.Now()
				g.phase(t, "lost", len(others), len(others), len(others))
				if at, lost := g.last(); at.Sub(cut) > 2*time.Second || len(lost) > 0 {
					t.Errorf("seed %d: out after %v; lost although they live: %v", seed, at.Sub(cut), lost)
				}
				g.end()
			})
		})
	}
}

// A member is stopped. Meanwhile all other members of its host, or two members of other hosts, are
// paused five times for up to 0.6 s. Only the stopped member is lost.
func TestPausedHostStays(t *testing.T) {
	eachHostLayout(t, 6, func(t *testing.T, seed uint64, sizes []int) {
		g := startHosts(t, seed, sizes)
		<-time.After(time.Second + g.random(250*time.Millisecond))
		here, others := g.on(fmt.Sprint("host", seed%3))
		g.lose(here[0])
		g.net.Stop(here[0].ID)
		for range 5 {
			paused := here[1:]
			if g.rng.IntN(3) == 0 {
				paused = []elastic.Member{others[g.rng.IntN(len(others))], others[g.rng.IntN(len(others))]}
			}
			for _, m := range paused {
				g.net.Stop(m.ID)
			}
			<-time.After(100*time.Millisecond + g.random(500*time.Millisecond))
			for _, m := range paused {
				g.net.Continue(m.ID)
			}
			<-time.After(g.random(200 * time.Millisecond))
		}
		n := len(g.members) - 1
		g.phase(t, "lost", n, n, n)
		<-time.After(2 * time.Second)
		if _, lost := g.last(); len(lost) > 0 {
			t.Errorf("seed %d: lost although they live: %v", seed, lost)
		}
		g.end()
	})
}
