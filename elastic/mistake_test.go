package elastic_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// fallible is a job of one launcher, whose program has a mistake.
type fallible struct {
	loop wrongLoop
	all  bool // every peer makes the mistake; otherwise only peer 1
	exit bool // a peer whose loop has ended exits at once, without Close
	n    int
	// The peer slow does not run from the time at on, for the duration pause.
	slow      int
	at, pause time.Duration

	network *simnet.Network
	sink    record

	mu      sync.Mutex
	groups  map[elastic.ID]*elastic.Group
	ledgers []*ledger // by index
	errs    []error   // by index
	killed  map[int]bool
}

// start starts the peers. The returned function waits for their ends.
func (f *fallible) start(ctx context.Context) (wait func()) {
	link := simnet.Link{Delay: time.Millisecond, Lag: time.Millisecond}
	f.network = simnet.New(simnet.Config{Link: link})
	f.groups, f.errs, f.killed = make(map[elastic.ID]*elastic.Group), make([]error, f.n), make(map[int]bool)
	for range f.n {
		f.ledgers = append(f.ledgers, newLedger())
	}
	var peers sync.WaitGroup
	var first []elastic.Member
	for i := range f.n {
		first = append(first, elastic.Member{ID: f.id(i), Index: i, Launcher: "launcher"})
	}
	for i := range f.n {
		peers.Go(func() { f.errs[i] = f.peer(ctx, first, i) })
	}
	return func() {
		peers.Wait()
		_ = f.network.Close()
	}
}

func (*fallible) id(i int) elastic.ID { return elastic.ID(fmt.Sprintf("member-%d", i)) }

// peer is the program of peer i.
func (f *fallible) peer(ctx context.Context, first []elastic.Member, i int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	endpoint, gone := f.network.Endpoint(first[i]), f.network.Gone(f.id(i))
	go func() {
		select {
		case <-gone: // the process of a killed peer ends
			cancel()
		case <-ctx.Done():
		}
	}()
	g, err := elastic.Join(ctx, elastic.Config{Endpoint: endpoint, Peers: first, Sole: true, Sink: &f.sink, Started: func(g *elastic.Group) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.groups[f.id(i)] = g
	}})
	if err == nil {
		err = f.loop.loop(ctx, g, f.ledgers[i], f.all || i == 1)
	}
	if f.exit {
		f.network.Kill(f.id(i))
		f.dead(f.id(i))
	}
	_ = g.Close()
	f.dead(f.id(i))
	return err
}

// dead reports the end of a peer to the others at once, as a launcher does, even to a peer that does not run.
func (f *fallible) dead(id elastic.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.groups, id)
	for _, g := range f.groups {
		g.Admin().Dead(id)
	}
}

// kill kills peer i, whose result does not count.
func (f *fallible) kill(i int) {
	f.mu.Lock()
	f.killed[i] = true
	f.mu.Unlock()
	f.network.Kill(f.id(i))
	f.dead(f.id(i))
}

// pauses are the times for which a peer does not run: the first is too short for the others to suspect it, and in the second they
// put it out.
func pauses() []time.Duration { return []time.Duration{600 * time.Millisecond, 4 * time.Second} }

// A mistake that some peers detect ends the loops of all peers with an error, and one of the errors describes the mistake. A peer
// that does not run for a while, at any time, does not take the ends of the others for deaths, and does not go on without them. If
// it was put out, the event of the mistake tells its launcher that the job has failed. If the peer with the mistake was put out
// before the mistake had an effect, nobody finds it; then all sums are right, or the launcher fails the job because the results differ.
func TestMistakeEndsAll(t *testing.T) {
	thin := 24
	if flag.Lookup("long").Value.String() == "true" {
		thin = 4
	}
	for _, w := range slices.Concat(wrongCommits(), wrongExits(), wrongCalls(), wrongArguments(), wrongReports()) {
		t.Run(w.name, func(t *testing.T) {
			runs := 0
			for _, n := range []int{2, 3, 6} {
				for slow := range n {
					if w.kill && (n == 2 || slow == n-1) {
						continue // peer n-1 dies
					}
					for point := (n + slow) % thin; point < 24; point += thin {
						runs++
						f := &fallible{loop: w, all: point%3 == 0, exit: point%2 == 0, n: n, slow: slow,
							at: time.Duration(4*point) * time.Millisecond, pause: pauses()[runs%2]}
						if w.kill {
							f.pause = pauses()[0] // otherwise too few peers are left
						}
						synctest.Test(t, f.test)
					}
				}
			}
			t.Logf("%d runs", runs)
		})
	}
}

// results returns the number of different results that peers have reported.
func (f *fallible) results() int {
	different := make(map[string]bool)
	for _, e := range f.sink.of("done") {
		different[e.Body.(event.Done).SHA256] = true
	}
	return len(different)
}

// test runs the peers. The peer slow does not run for a while.
func (f *fallible) test(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	begun := time.Now()
	ended := f.start(ctx)
	time.AfterFunc(f.at, func() { f.network.Stop(f.id(f.slow)) })
	time.AfterFunc(f.at+f.pause, func() { f.network.Continue(f.id(f.slow)) })
	if f.loop.kill {
		time.AfterFunc(45*time.Millisecond, func() { f.kill(f.n - 1) })
	}
	ended()
	named, well, mistaken, wrong := false, 0, 0, 0
	for i, err := range f.errs {
		if f.killed[i] {
			continue
		}
		if err == nil {
			well++
			if !slices.Equal(f.ledgers[i].sums, undisturbed(f.ledgers[i].step).sums) {
				wrong++
			}
		}
		if errors.Is(err, collective.ErrMistake) {
			mistaken++
			named = named || strings.Contains(err.Error(), f.loop.want) || strings.Contains(err.Error(), "peers differ")
		}
	}
	var bad string
	switch short := f.pause == pauses()[0]; {
	case (f.all || f.loop.kill) && well == f.n-len(f.killed): // the same call at all peers is no mistake, and a death without effect makes none
	case short && well+mistaken < f.n-len(f.killed), short && well > 0:
		bad = "not all peers end with the mistake"
	case !f.all && wrong > 0 && len(f.sink.of("mistake")) == 0 && f.results() < 2:
		bad = "wrong sums, and neither a mistake nor different results"
	case mistaken > 0 && !named:
		bad = "no peer names the mistake"
	case mistaken > 0 && len(f.sink.of("mistake")) == 0:
		bad = "no event"
	case time.Since(begun) > 10*time.Second:
		bad = "slow"
	}
	if bad != "" {
		t.Errorf("%s: n=%d, slow peer %d at %v for %v, all=%v, exit=%v, %v: %v", bad, f.n, f.slow, f.at, f.pause, f.all, f.exit, time.Since(begun), f.errs)
	}
}

// The end of the context ends the wait for a peer that does not run and does not know of the mistake.
func TestTheContextEndsTheWaitForOthers(t *testing.T) {
	for _, leave := range []func() bool{func() bool { return false }, func() bool { panic("a bug") }} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &fallible{n: 2}
			var took time.Duration
			f.loop.loop = func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) (err error) {
				var made time.Time
				defer func() {
					if wrong {
						_ = recover()
						err, took = g.Err(), time.Since(made)
					}
				}()
				return inBody(func(context.Context, *elastic.Turn, *ledger) bool {
					made = time.Now()
					f.network.Stop(f.id(0))
					time.AfterFunc(2*time.Second, cancel)
					time.AfterFunc(20*time.Second, func() { f.network.Continue(f.id(0)) })
					return leave()
				})(ctx, g, l, wrong)
			}
			f.start(ctx)()
			if !errors.Is(f.errs[1], collective.ErrMistake) || took != 2*time.Second {
				t.Errorf("the loop ended after %v: %v", took, f.errs[1])
			}
		})
	}
}
