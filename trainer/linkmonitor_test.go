package trainer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/ring"
)

// web is a session whose ranks measure links. The test sets the cost of each link. The only messages that the ranks exchange are
// link updates.
type web struct {
	t      *testing.T
	cost   [][]int64
	noise  func() float64 // random factor of a measurement
	view   elastic.View
	ranks  []*linkMonitor
	meters []*fakeMeter
	probed int // total bytes of probes
	orders int // number of changes of the order
}

// fakeMeter is the meter of one rank.
type fakeMeter struct {
	nobody
	web     *web
	self    int
	arrived []transport.Arrival
}

func (f *fakeMeter) Arrived() []transport.Arrival {
	all := f.arrived
	f.arrived = make([]transport.Arrival, len(all))
	return all
}

func (f *fakeMeter) Probe(to, bytes int) {
	f.web.probed += bytes
	f.web.send(f.self, to, bytes)
}

// send records the arrival of bytes over a link.
func (w *web) send(from, to, bytes int) {
	a := &w.meters[to].arrived[from]
	a.Bytes += int64(bytes)
	a.Time += time.Duration(float64(w.cost[from][to])*w.noise()*float64(bytes)/(1<<20)) * time.Microsecond
}

// newWeb makes a session of members on the given hosts, with the given bytes of gradients.
func newWeb(t *testing.T, hosts []string, bytes int, cost func(from, to int) int64) *web {
	t.Helper()
	w := &web{t: t, noise: func() float64 { return 1 }}
	for rank, h := range hosts {
		w.view.Members = append(w.view.Members, elastic.Member{ID: elastic.ID(fmt.Sprint("id", rank)), Host: h})
		w.ranks = append(w.ranks, &linkMonitor{bytes: bytes})
		row := make([]int64, len(hosts))
		for to := range row {
			row[to] = cost(rank, to)
		}
		w.cost = append(w.cost, row)
	}
	w.enter()
	return w
}

// enter begins another session of the same members.
func (w *web) enter() {
	w.t.Helper()
	w.meters = nil
	var rows [][]linkCost
	for _, l := range w.ranks {
		rows = append(rows, l.row(w.view))
	}
	for rank, l := range w.ranks {
		m := &fakeMeter{web: w, self: rank, arrived: make([]transport.Arrival, len(w.ranks))}
		w.meters = append(w.meters, m)
		c, err := collective.New(m, rank, len(w.ranks), collective.Options{})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = c.Close() })
		l.enter(&elastic.Session{View: w.view, Rank: rank, Comm: c}, rows)
	}
	w.agree()
}

// step simulates the effects of a step on the links: probes, the ring, the commit record.
func (w *web) step() {
	w.t.Helper()
	for rank, l := range w.ranks {
		l.probe()
		w.send(rank, l.next(), 2*l.bytes)
	}
	reports := make([]rankReport, len(w.ranks))
	for rank, l := range w.ranks {
		reports[rank].links = l.measure()
	}
	before := w.ranks[0].order
	for _, l := range w.ranks {
		l.learn(reports)
	}
	w.agree()
	if !slices.Equal(before, w.ranks[0].order) {
		w.orders++
	}
}

// agree checks that all ranks have the same order and choice of algorithm.
func (w *web) agree() {
	w.t.Helper()
	for rank, l := range w.ranks {
		if !slices.Equal(l.order, w.ranks[0].order) || l.slowLinkElsewhere != w.ranks[0].slowLinkElsewhere {
			w.t.Fatalf("rank %d has the order %v (%t), rank 0 %v (%t)", rank, l.order, l.slowLinkElsewhere, w.ranks[0].order, w.ranks[0].slowLinkElsewhere)
		}
	}
}

// slowest returns the true cost of the slowest link of the ring.
func (w *web) slowest() int64 {
	slowest, _ := ring.Bottleneck(w.cost, w.ranks[0].order)
	return slowest
}

// separateHosts returns the names of n different hosts, one for each member.
func separateHosts(n int) []string {
	hosts := make([]string, n)
	for i := range hosts {
		hosts[i] = fmt.Sprint("host", i)
	}
	return hosts
}

// The ring soon avoids two slow links. Later it avoids a link that becomes slow.
func TestSlowLinksAreLeft(t *testing.T) {
	w := newWeb(t, separateHosts(6), 4<<20, func(from, to int) int64 {
		if pair := [2]int{min(from, to), max(from, to)}; pair == [2]int{0, 1} || pair == [2]int{2, 3} {
			return 400_000
		}
		return 40_000
	})
	for range 3 {
		w.step()
	}
	if w.slowest() != 40_000 || !w.ranks[0].slowLinkElsewhere {
		t.Fatalf("after 3 steps the order is %v", w.ranks[0].order)
	}
	for range 10 {
		w.step()
	}
	order := w.ranks[0].order
	from, to := order[2], order[3]
	w.cost[from][to] = 400_000
	w.orders = 0
	for range 3 {
		w.step()
	}
	if w.slowest() != 40_000 || w.orders != 1 {
		t.Errorf("link %d->%d became slow: 3 steps later the order is %v, after %d others", from, to, w.ranks[0].order, w.orders)
	}
	if u := w.ranks[0].pendingOrder; u == nil || u.Reason != fmt.Sprintf("the link from rank %d to rank %d was the slowest", from, to) || u.Before > 3 || u.After < 20 {
		t.Errorf("logged %+v", u)
	}
}

// If links differ only by noise that is shorter than a long transfer, the order does not change, and probes
// send few bytes.
func TestNoiseMovesNothing(t *testing.T) {
	const bytes, steps, cost = 8 << 20, 200, 10_000
	if slowest := 5 * cost * 2 * bytes / (1 << 20) * time.Microsecond; slowest >= longTransfer {
		t.Fatalf("noise of %v", slowest)
	}
	w := newWeb(t, separateHosts(6), bytes, func(int, int) int64 { return cost })
	random := rand.New(rand.NewPCG(1, 1))
	calls := 0
	w.noise = func() float64 { // up to a tenth off; sometimes far off, but never twice in a row
		if calls++; calls%50 == 0 {
			return 5
		}
		return 0.9 + 0.2*random.Float64()
	}
	for range steps {
		w.step()
	}
	if w.orders > 0 {
		t.Errorf("%d orders", w.orders)
	}
	if most := 6 * (2*bytes/probeShare*steps + maxFirstProbes*firstProbe); w.probed > most || w.probed == 0 {
		t.Errorf("probes of %d bytes, at most %d", w.probed, most)
	}
}

// Members of one host are neighbours before any measurement. With fewer than three hosts, or
// small gradients, nothing is measured.
func TestWhatIsNotMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		hosts []string
		bytes int
		want  []int
	}{
		"one host":        {[]string{"a", "a", "a"}, 4 << 20, []int{0, 1, 2}},
		"two hosts":       {[]string{"a", "b", "a", "b"}, 4 << 20, []int{0, 1, 3, 2}},
		"small gradients": {[]string{"a", "b", "a", "c"}, 1000, []int{0, 1, 3, 2}},
		"alone":           {[]string{"a"}, 4 << 20, []int{0}},
		"no names":        {[]string{"", "", "", ""}, 1000, []int{0, 1, 2, 3}},
	} {
		w := newWeb(t, test.hosts, test.bytes, func(int, int) int64 { return 10_000 })
		w.step()
		if w.probed > 0 || !slices.Equal(w.ranks[0].order, test.want) || w.ranks[0].slowLinkElsewhere {
			t.Errorf("%s: order %v, want %v; probes of %d bytes", name, w.ranks[0].order, test.want, w.probed)
		}
	}
}

// Members of a site are neighbours in the ring. Within a site, members of a host are neighbours. With fewer than three sites
// nothing is measured, because only one rank of each site is in the ring between sites.
func TestOrderOfSites(t *testing.T) {
	w := newWeb(t, []string{"a", "b", "c", "a", "d", "b"}, 4<<20, func(int, int) int64 { return 10_000 })
	for rank, site := range []string{"x", "y", "x", "", "y", ""} { // a host's site is the site of its first rank
		w.view.Members[rank].Site = site
	}
	w.enter()
	w.step()
	if got := w.ranks[0].order; w.probed > 0 || !slices.Equal(got, []int{0, 1, 5, 4, 2, 3}) {
		t.Errorf("order %v, probes of %d bytes", got, w.probed)
	}
	w.view.Members[4].Site = "z"
	w.enter()
	if w.step(); w.probed == 0 {
		t.Error("nothing is measured between three sites")
	}
}

// The ring replaces an unmeasured link by a measured one, even by a slow one, and logs this reason.
func TestUnmeasuredLinkIsLeft(t *testing.T) {
	w := newWeb(t, separateHosts(4), 4<<20, func(int, int) int64 { return 40_000 })
	l := w.ranks[0]
	for from := range 4 {
		for to := range 4 {
			if from != to && [2]int{from, to} != [2]int{1, 2} {
				l.set(from, to, linkCostOf(400_000))
			}
		}
	}
	l.updateOrder()
	if l.measured(l.order) && l.pendingOrder != nil && l.pendingOrder.Reason == "the link from rank 1 to rank 2 was not measured" && l.pendingOrder.Before > 0 {
		return
	}
	t.Errorf("order %v, logged %+v", l.order, l.pendingOrder)
}

// A new session keeps the measurements, although its members have other ranks.
func TestLinksOutliveSessions(t *testing.T) {
	w := newWeb(t, separateHosts(5), 4<<20, func(from, to int) int64 { return int64(10_000 * (1 + (3*from+to)%7)) })
	for range 10 {
		w.step()
	}
	slices.Reverse(w.view.Members)
	slices.Reverse(w.ranks)
	slices.Reverse(w.cost)
	for _, row := range w.cost {
		slices.Reverse(row)
	}
	w.enter()
	best, _ := ring.Bottleneck(w.cost, ring.Order(w.cost, []int{0, 1, 2, 3, 4}, nil))
	if got := w.slowest(); got > best*5/4 {
		t.Errorf("the slowest link of the new session costs %d, possible is %d", got, best)
	}
	if w.ranks[0].unknown() > 0 || w.ranks[0].pendingOrder == nil || w.ranks[0].pendingOrder.Reason != "the members have changed" {
		t.Errorf("%d links are unknown, logged %+v", w.ranks[0].unknown(), w.ranks[0].pendingOrder)
	}
}

// An unmeasured link has the cost of the cheapest link between the same two hosts.
func TestCostsOfHosts(t *testing.T) {
	w := newWeb(t, []string{"a", "a", "b", "c"}, 1000, func(int, int) int64 { return 1 })
	l := w.ranks[0]
	l.set(0, 2, linkCostOf(800))
	l.set(2, 1, linkCostOf(1600))
	l.set(0, 1, linkCostOf(5))                                           // within a host: ignored
	l.learn([]rankReport{{links: linkUpdates{7, 9<<8 | 1}}, {}, {}, {}}) // updates for ranks that do not exist
	want := [][]int64{{1, 1, 832, 0}, {1, 1, 832, 0}, {1664, 1664, 1, 0}, {0, 0, 0, 1}}
	if got := l.costs(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Probes over slow links are shorter, because other messages have to wait for a probe.
func TestProbeLength(t *testing.T) {
	for _, test := range []struct {
		cost int64
		want int
	}{{1000, probeBytes}, {1 << 20, probeTime / 8 * 8}, {1 << 30, minProbe}} {
		if got := probeLength(linkCostOf(test.cost)); got != test.want {
			t.Errorf("cost %d: %d bytes, want %d", test.cost, got, test.want)
		}
	}
	if probeLength(0) != firstProbe {
		t.Error("the first probe")
	}
}

// The measured cost of each link varies by up to a factor of two from step to step. Because of hysteresis the order changes only a
// few times.
func TestRestlessLinks(t *testing.T) {
	w := newWeb(t, separateHosts(6), 8<<20, func(int, int) int64 { return 40_000 })
	random := rand.New(rand.NewPCG(2, 1))
	w.noise = func() float64 { return 1 + random.Float64() }
	for range 100 {
		w.step()
	}
	if w.orders > 4 {
		t.Errorf("%d orders in 100 steps", w.orders)
	}
	if w.ranks[0].hysteresis = minHysteresis; w.ranks[0].better(76, 100) || !w.ranks[0].better(75, 100) {
		t.Error("a margin of a third")
	}
}

// The log has each measured link of a peer once, and again when it has changed, but not more often than people can read.
func TestLinksAreTold(t *testing.T) {
	w := newWeb(t, separateHosts(4), 4<<20, func(int, int) int64 { return 40_000 })
	l, now := w.ranks[0], time.Unix(2e9, 0)
	for range 10 {
		w.step()
	}
	told := l.dueEvents(now)
	if len(told) != 3 {
		t.Fatalf("told %+v", told)
	}
	for _, n := range told {
		if n.From == "id0" || n.MBs < 24 || n.MBs > 29 { // a MiB in 40 ms
			t.Errorf("told %+v", n)
		}
	}
	if again := l.dueEvents(now.Add(time.Hour)); again != nil {
		t.Errorf("told again: %+v", again)
	}
	change := func(p linkCost) { l.set(1, 0, p) }
	change(linkCostOf(42_000))
	if small := l.dueEvents(now.Add(time.Hour)); small != nil {
		t.Errorf("a small change is told: %+v", small)
	}
	change(linkCostOf(400_000))
	if early := l.dueEvents(now.Add(toldPeriod - 1)); early != nil {
		t.Errorf("told too early: %+v", early)
	}
	if late := l.dueEvents(now.Add(toldPeriod)); len(late) != 1 || late[0].From != "id1" || late[0].MBs > 3 {
		t.Errorf("told %+v", late)
	}
}
