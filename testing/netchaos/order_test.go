package netchaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/event"
	"github.com/elrun/elrun/ring"
)

const (
	// ringHosts is the number of hosts, each with one member, in the tests of ring orders.
	ringHosts = 6
	// fastLink and slowLink are rates in Mbit/s.
	fastLink, slowLink = 200, 20
	// gradient is how many elements are reduced: 4 MB.
	gradient = 1 << 20
)

// twoSlow has two slow links, in both directions, which the ring of the ranks in their
// own order goes over.
func twoSlow() rates {
	r := newRates(ringHosts, fastLink)
	for _, link := range [][2]int{{0, 1}, {2, 3}} {
		r[link[0]][link[1]], r[link[1]][link[0]] = slowLink, slowLink
	}
	return r
}

// The ring keeps away from two slow links among fast ones, is about as fast as the best
// order of all, and is planned anew when one of its links becomes slow.
func TestRingOrder(t *testing.T) {
	l, r := newLab(t, ringHosts), twoSlow()
	l.shape(t, r)
	dir := folder(t)
	j := trainHosts(t, l, filepath.Join(dir, "train"))
	chosen := j.untilOrder(t, time.Time{}, func(o []int) bool { return slowestOf(r, o) == fastLink })
	t.Logf("step %d: %v", chosen.Step, chosen.Body)
	order := chosen.Body.(event.Order).Order
	until(t, "steps in that order", func() bool { step, _ := j.log.step(t); return step >= chosen.Step+5 })

	from, to := order[2], order[3]
	before, _ := j.log.step(t)
	at := time.Now()
	l.reshape(t, from, to, slowLink)
	r[from][to] = slowLink
	again := j.untilOrder(t, at, func(o []int) bool { return slowestOf(r, o) == fastLink })
	// A step is in the log after the tail of the next one: the one after that was under way.
	underWay := before + 2
	t.Logf("link %d->%d became slow during step %d; step %d: %v", from, to, underWay, again.Step, again.Body)
	if late := again.Step - underWay; late > 3 {
		t.Errorf("the order was changed %d steps after the link, want at most 3", late)
	}
	until(t, "steps in the new order", func() bool { step, _ := j.log.step(t); return step >= again.Step+3 })
	j.logSteps(t)
	j.end()

	l.reshape(t, from, to, fastLink)
	best, worst := extremes(twoSlow())
	// They take turns, so that what else this machine does disturbs all of them.
	sequence := [][]int{best, order, worst, best, order, worst, best, order, best, order, best, order}
	var times [3]float64 // the least of each
	for i, took := range timeOrders(t, l, filepath.Join(dir, "times"), sequence) {
		for k, which := range [][]int{best, order, worst} {
			if slices.Equal(sequence[i], which) && (times[k] == 0 || took < times[k]) {
				times[k] = took
			}
		}
	}
	t.Logf("all-reduce of 4 MB: %.3f s in the best order %v, %.3f s in the chosen one %v, %.3f s in the worst one %v: %.2f times faster than the worst, %.3f of the best",
		times[0], best, times[1], order, times[2], worst, times[2]/times[1], times[1]/times[0])
	if times[2] < 2.5*times[1] || times[1] > 1.5*times[0] {
		t.Error("want at most a third of the time of the worst order, and about that of the best")
	}
}

// slowestOf returns the rate of the slowest link of a ring.
func slowestOf(r rates, order []int) int {
	least := r[order[len(order)-1]][order[0]]
	for i, to := range order[1:] {
		least = min(least, r[order[i]][to])
	}
	return least
}

// extremes returns the best and the worst of all orders, by the rates.
func extremes(r rates) (best, worst []int) {
	cost := r.costs()
	score := func(order []int) [2]int64 {
		slowest, sum := ring.Bottleneck(cost, order)
		return [2]int64{slowest, sum}
	}
	less := func(a, b []int) bool { x, y := score(a), score(b); return slices.Compare(x[:], y[:]) < 0 }
	var visit func(order []int)
	visit = func(order []int) {
		if len(order) == len(r) {
			if best == nil || less(order, best) {
				best = order
			}
			if worst == nil || less(worst, order) {
				worst = order
			}
			return
		}
		for next := range r {
			if !slices.Contains(order, next) {
				visit(append(slices.Clone(order), next))
			}
		}
	}
	visit([]int{0})
	return best, worst
}

// hosted is a group with one member on each host of a lab, whose rank is the number of
// the host.
type hosted struct {
	all []*process
	log *journal // of rank 0
}

// onHosts starts a role on each host of a lab.
func onHosts(t *testing.T, l *lab, dir, role string, env ...string) *hosted {
	t.Helper()
	makeDir(t, dir)
	h := &hosted{log: &journal{path: filepath.Join(dir, "events-0.jsonl")}}
	for i, at := range l.hosts {
		b, err := json.Marshal(order{Dir: dir, Index: i, First: len(l.hosts), Params: gradient, Slots: 1, Pace: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		env := append([]string{thenVariable + "=" + role, orderVariable + "=" + string(b)}, env...)
		h.all = append(h.all, start(t, at, env, self(t)))
	}
	t.Cleanup(func() {
		for i, p := range h.all {
			if t.Failed() {
				t.Logf("host %d printed:\n%.2000s%.10000s", i, p.out.String(), p.err.String())
			}
			p.end()
		}
	})
	return h
}

// trainHosts starts to train a model.
func trainHosts(t *testing.T, l *lab, dir string) *hosted {
	t.Helper()
	return onHosts(t, l, dir, "member")
}

// end ends the group.
func (h *hosted) end() {
	for _, p := range h.all {
		p.end()
	}
}

// untilOrder waits for an order of the ring after a time that fits.
func (h *hosted) untilOrder(t *testing.T, at time.Time, fits func(order []int) bool) event.Event {
	t.Helper()
	var e event.Event
	until(t, "another order of the ring", func() bool {
		var ok bool
		e, ok = first(t, h.log, at, func(_ event.Event, o event.Order) bool { return fits(o.Order) })
		return ok
	})
	return e
}

// logSteps shows how long steps took, and the orders.
func (h *hosted) logSteps(t *testing.T) {
	t.Helper()
	for _, e := range h.log.events(t) {
		switch b := e.Body.(type) {
		case event.Step:
			t.Logf("step %d: %.0f ms of communication, %.0f ms in all", e.Step, b.CommMS, b.StepMS)
		case event.Order:
			t.Logf("step %d: %+v", e.Step, b)
		case event.View, event.Lost, event.Stall:
			t.Logf("step %d: %s %+v", e.Step, b.Name(), b)
		}
	}
}

// ringsVariable has the orders that the role ringer tries, as JSON.
const ringsVariable = "NETCHAOS_RINGS"

// timeOrders returns how many seconds an all-reduce takes in each order.
func timeOrders(t *testing.T, l *lab, dir string, orders [][]int) []float64 {
	t.Helper()
	b, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	h := onHosts(t, l, dir, "ringer", ringsVariable+"="+string(b))
	for _, p := range h.all {
		if status := p.wait(t); status != 0 {
			t.Fatalf("a member ended with status %d", status)
		}
	}
	var times []float64
	if err := json.Unmarshal([]byte(h.all[0].out.String()), &times); err != nil {
		t.Fatalf("%q: %v", h.all[0].out.String(), err)
	}
	return times
}

// timeRings is the role ringer: rank 0 prints how long the reductions took.
func timeRings(ctx context.Context) error {
	var o order
	var orders [][]int
	if err := json.Unmarshal([]byte(os.Getenv(orderVariable)), &o); err != nil {
		return fmt.Errorf("%s: %w", orderVariable, err)
	}
	if err := json.Unmarshal([]byte(os.Getenv(ringsVariable)), &orders); err != nil {
		return fmt.Errorf("%s: %w", ringsVariable, err)
	}
	g, err := o.join(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	s, err := g.Next(ctx, 0)
	if err != nil {
		return err
	}
	var times []float64
	for _, order := range orders {
		d, err := timeRing(ctx, s.Comm, order)
		if err != nil {
			return err
		}
		times = append(times, d.Seconds())
	}
	if s.Rank == 0 {
		return json.NewEncoder(os.Stdout).Encode(times)
	}
	return nil
}

// timeRing returns how long a reduction takes that all ranks begin at the same time.
func timeRing(ctx context.Context, c *collective.Comm, order []int) (time.Duration, error) {
	c, err := c.Using(collective.Ring).InOrder(order)
	if err != nil {
		return 0, err
	}
	v := make([]float32, gradient)
	if err := collective.Barrier(ctx, c.Using(collective.Auto)); err != nil {
		return 0, err
	}
	begun := time.Now()
	err = collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
	return time.Since(begun), err
}
