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
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/ring"
	"github.com/elrun/elrun/testing/process"
)

const (
	// ringHosts is the number of hosts, each with one member, in the tests of ring orders.
	ringHosts = 6
	// fastLink and slowLink are rates in Mbit/s.
	fastLink, slowLink = 200, 20
)

// orderLimit is so long that only a hang exceeds it, even on a loaded machine. It is longer than limit because the load affects
// all measurements, and the order changes until the load is over.
const orderLimit = 3 * limit

// elements returns the number of elements to reduce: 4 MB, or 1 MB in the short form, which measures nothing.
func elements() int {
	if flagged[bool]("long") {
		return 1 << 20
	}
	return 1 << 18
}

// twoSlow returns rates with two links that are slow in both directions. The ring in ascending order of ranks uses both.
func twoSlow() rates {
	r := newRates(ringHosts, fastLink)
	for _, link := range [][2]int{{0, 1}, {2, 3}} {
		r[link[0]][link[1]], r[link[1]][link[0]] = slowLink, slowLink
	}
	return r
}

// The ring avoids two slow links among fast links. When one of the ring's links becomes slow, the
// ring gets a new order. The long form checks that this happens soon, and measures how much the
// order matters.
func TestRingOrder(t *testing.T) {
	l, r := newLab(t, ringHosts), twoSlow()
	l.shape(t, r)
	dir := folder(t)
	j := trainHosts(t, l, filepath.Join(dir, "train"))
	t.Cleanup(func() { j.logSteps(t) })
	chosen := j.untilFast(t, r)
	t.Logf("step %d: %v", chosen.Step, chosen.Body)
	for range times(1, 3) {
		j.slowDown(t, l, r)
	}
	j.end()
	if !flagged[bool]("long") {
		return
	}
	for from, row := range twoSlow() {
		for to, rate := range row {
			if r[from][to] != rate {
				l.reshape(t, from, to, rate)
			}
		}
	}
	order := chosen.Body.(event.Order).Order
	best, worst := extremes(twoSlow())
	took := compareOrders(t, l, filepath.Join(dir, "times"), best, order, worst)
	t.Logf("all-reduce of 4 MB: %.3f s in the best order %v, %.3f s in the chosen one %v, %.3f s in the worst one %v: %.2f times faster than the worst, %.3f of the best",
		took[0], best, took[1], order, took[2], worst, took[2]/took[1], took[1]/took[0])
	if took[2] < 3*took[1] || took[1] > 1.1*took[0] {
		t.Error("want at most a third of the time of the worst order, and about that of the best")
	}
}

// slowDown makes a link of the ring slow, and waits until the ring has an order without this link.
func (h *hosted) slowDown(t *testing.T, l *lab, r rates) {
	t.Helper()
	var ring []int
	h.await(t, "steps in one order", func() bool {
		e := h.lastOrder(t)
		step := h.log.Read(t).Step
		ring = e.Body.(event.Order).Order
		return step >= e.Step+5 || step >= e.Step && !flagged[bool]("long")
	})
	from, to := ring[2], ring[3]
	l.reshape(t, from, to, slowLink)
	done := h.log.Read(t).Step
	r[from][to] = slowLink
	again := h.untilFast(t, r)
	// Step n is in the log after the commit record of step n+1. At that time step n+2 is under way.
	underWay := done + 2
	t.Logf("link %d->%d became slow during step %d; step %d: %v", from, to, underWay, again.Step, again.Body)
	if late := again.Step - underWay; late > 3 && flagged[bool]("long") {
		t.Errorf("the order was changed %d steps after the link, want at most 3", late)
	}
	h.await(t, "steps in the new order", func() bool { return h.log.Read(t).Step >= again.Step+3 })
}

// await waits for a condition, and fails the test after orderLimit.
func (h *hosted) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !process.Holds(t.Context(), orderLimit, condition) {
		t.Fatalf("waited %v in vain for %s", orderLimit, what)
	}
}

// lastOrder returns the event of the order in use. The event has no body if the log has no order.
func (h *hosted) lastOrder(t *testing.T) (last event.Event) {
	t.Helper()
	for _, e := range h.log.Read(t).Events {
		if _, ok := e.Body.(event.Order); ok {
			last = e
		}
	}
	return last
}

// untilFast waits until the order in use has only fast links, and returns its event.
func (h *hosted) untilFast(t *testing.T, r rates) (e event.Event) {
	t.Helper()
	h.await(t, "an order of fast links", func() bool {
		e = h.lastOrder(t)
		o, ok := e.Body.(event.Order)
		return ok && slowestOf(r, o.Order) == fastLink
	})
	return e
}

// compareOrders returns the shortest time of an all-reduce in each of three orders, in seconds. The worst order is measured once.
// The other two alternate, so that other load on the machine affects both.
func compareOrders(t *testing.T, l *lab, dir string, best, chosen, worst []int) (least [3]float64) {
	t.Helper()
	sequence := append([][]int{worst}, slices.Repeat([][]int{best, chosen}, 15)...)
	for i, took := range timeOrders(t, l, dir, sequence) {
		for k, which := range [][]int{best, chosen, worst} {
			if slices.Equal(sequence[i], which) && (least[k] == 0 || took < least[k]) {
				least[k] = took
			}
		}
	}
	return least
}

// slowestOf returns the rate of the slowest link of a ring.
func slowestOf(r rates, order []int) int {
	least := r[order[len(order)-1]][order[0]]
	for i, to := range order[1:] {
		least = min(least, r[order[i]][to])
	}
	return least
}

// extremes returns the best and the worst of all orders, by the rates of their links.
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

// hosted is a group without elrun, with one member on each host of a lab. The rank of a member is
// the number of its host.
type hosted struct {
	all []*process.Process
	log *journal // event log of rank 0
}

// onHosts starts a role on each host of a lab.
func onHosts(t *testing.T, l *lab, dir, role string, env ...string) *hosted {
	t.Helper()
	makeDir(t, dir)
	h := &hosted{log: newJournal(t, filepath.Join(dir, "events-0.jsonl"))}
	for i, at := range l.hosts {
		b, err := json.Marshal(order{Dir: dir, Index: i, First: len(l.hosts), Params: elements(), Slots: 1, Pace: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		env := append([]string{thenVariable + "=" + role, orderVariable + "=" + string(b)}, env...)
		h.all = append(h.all, process.Start(t, on(t, at, env, process.Self(t))))
	}
	return h
}

// trainHosts starts the role member on each host.
func trainHosts(t *testing.T, l *lab, dir string) *hosted {
	t.Helper()
	return onHosts(t, l, dir, "member")
}

// end kills the members.
func (h *hosted) end() {
	for _, p := range h.all {
		p.Kill()
	}
}

// logSteps logs how long steps took, and the orders of the ring.
func (h *hosted) logSteps(t *testing.T) {
	t.Helper()
	for _, e := range h.log.Read(t).Events {
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

// ringsVariable is the environment variable with the orders that the role ringer tries, as JSON.
const ringsVariable = "NETCHAOS_RINGS"

// timeOrders returns the time of an all-reduce in each order, in seconds.
func timeOrders(t *testing.T, l *lab, dir string, orders [][]int) []float64 {
	t.Helper()
	b, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	h := onHosts(t, l, dir, "ringer", ringsVariable+"="+string(b))
	for _, p := range h.all {
		if status := p.Wait(t); status != 0 {
			t.Fatalf("a member ended with status %d", status)
		}
	}
	var times []float64
	if err := json.Unmarshal([]byte(h.all[0].Out.String()), &times); err != nil {
		t.Fatalf("%q: %v", h.all[0].Out.String(), err)
	}
	return times
}

// timeRings is the role ringer: it reduces a vector in each order. Rank 0 prints the times.
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
	s, err := g.Sessions().Next(ctx, 0)
	if err != nil {
		return err
	}
	var times []float64
	for _, order := range orders {
		d, err := timeRing(ctx, s.Comm, order, o.Params)
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

// timeRing returns the time of a reduction that all ranks begin together.
func timeRing(ctx context.Context, c *collective.Comm, order []int, elements int) (time.Duration, error) {
	ring := c.With(collective.CallOptions{Algorithm: collective.Ring, Order: order})
	v := make([]float32, elements)
	if err := collective.Barrier(ctx, c); err != nil {
		return 0, err
	}
	begun := time.Now()
	err := collective.AllReduce(ctx, ring, v, v, collective.Sum[float32])
	return time.Since(begun), err
}
