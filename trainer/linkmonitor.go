package trainer

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/ring"
)

const (
	// minLinkBytes is the size in bytes of gradients from which on links are measured:
	// below it a step is made of the latencies of messages.
	minLinkBytes = 512 << 10
	// probeBytes is the length of a probe, of which the transport measures three quarters.
	probeBytes = 256 << 10
	// firstProbe is that of a probe over a link of which nothing is known, which might be
	// a slow one.
	firstProbe = 128 << 10
	// minProbe is the shortest that is measured at all.
	minProbe = 32 << 10
	// probeTime bounds the time that a probe takes, in microseconds: what else is sent over
	// the link waits for it.
	probeTime = 250_000
	// probeShare is which part of the bytes that a rank sends in a step its probes may be.
	probeShare = 100
	// minLinkCost is that of 4 Gbit/s, in microseconds for a MiB: how fast a faster link is
	// measured to be has more to do with the processors at its ends.
	minLinkCost = 2000
	// minHysteresis is by how many percent another order must be better. Each change doubles
	// that, up to maxHysteresis, and each hysteresisSteps without one halve it again: where
	// links keep changing a little the order does not follow, and one that is far slower
	// than the others is left at once.
	minHysteresis, maxHysteresis, hysteresisSteps = 33, 400, 100
	// maxFirstProbes is for how many links of which nothing is known probes are sent besides.
	maxFirstProbes = 16
)

// linkMonitor chooses the order in which the ring goes round, by what the links between hosts
// cost. All ranks of a session know the same costs, and so come to the same order.
type linkMonitor struct {
	bytes             int          // of the gradients
	self              int          // this peer's rank
	ids               []elastic.ID // of the ranks
	host              []int        // of the ranks
	site              []int        // of the ranks; nil where they are not known
	known             [][]linkCost // of the links from a rank to a rank; 0 within a host
	order             []int        // of the ring
	slowLinkElsewhere bool         // some link is far slower than those of the ring
	hysteresis        int64        // by how many percent another order must be better
	sinceChange       int          // steps since margin has changed
	pendingOrder      *event.Order // what the log is to hear of the order

	// What this peer measures.
	meter         transport.Meter         // nil where it measures nothing
	last          []int64                 // costs of the links to it when they were last measured, by rank
	best          []linkCost              // what the last two measurements say, by rank
	toSelf        map[elastic.ID]linkCost // what all know of the links to it, for the next session
	probeBudget   int                     // bytes that it may send as probes
	probeDistance int                     // distance of the rank that it probes next
}

// spansHosts reports whether there is a network between members of the session.
func (l *linkMonitor) spansHosts() bool { return slices.Max(l.host) > 0 }

// row returns what is known of the links to this peer from the members of a view.
func (l *linkMonitor) row(v elastic.View) []linkCost {
	row := make([]linkCost, len(v.Members))
	for rank, m := range v.Members {
		row[rank] = l.toSelf[m.ID]
	}
	return row
}

// enter begins a session with the rows of all ranks.
func (l *linkMonitor) enter(s *elastic.Session, rows [][]linkCost) {
	n := len(s.View.Members)
	l.self, l.host, l.site, l.ids = s.Rank, s.View.Hosts(), s.View.Sites(), nil
	l.known, l.toSelf = make([][]linkCost, n), make(map[elastic.ID]linkCost)
	for from, m := range s.View.Members {
		l.ids = append(l.ids, m.ID)
		l.known[from] = make([]linkCost, n)
	}
	measured := false
	for to, row := range rows {
		for from, p := range row {
			measured = l.set(from, to, p) || measured
		}
	}
	l.meter, l.last, l.best = nil, make([]int64, n), slices.Clone(rows[s.Rank])
	places := l.host
	if l.site != nil {
		places = l.site // one rank of each goes round
	}
	if l.bytes >= minLinkBytes && slices.Max(places) >= 2 { // of two there is one order
		l.meter = s.Comm.Meter()
	}
	l.hysteresis, l.sinceChange = minHysteresis, 0
	l.probeBudget, l.probeDistance = firstProbe*min(l.unknown(), maxFirstProbes), 0
	l.initOrder(measured)
}

// set takes in what all know of a link, if it is one between hosts of the session.
func (l *linkMonitor) set(from, to int, p linkCost) (changed bool) {
	if from < 0 || from >= len(l.host) || l.host[from] == l.host[to] || l.known[from][to] == p {
		return false
	}
	l.known[from][to] = p
	if to == l.self {
		l.toSelf[l.ids[from]] = p
	}
	return true
}

// unknown counts the links from this peer of which nothing is known.
func (l *linkMonitor) unknown() int {
	n := 0
	for to, p := range l.known[l.self] {
		if p == 0 && l.host[to] != l.host[l.self] {
			n++
		}
	}
	return n
}

// costs returns what links cost. One within a host costs next to nothing. One that is not
// known is as good as the best between the same hosts.
func (l *linkMonitor) costs() [][]int64 {
	best := make(map[[2]int]int64)
	cost := make([][]int64, len(l.known))
	for i, row := range l.known {
		cost[i] = make([]int64, len(row))
		for j, p := range row {
			cost[i][j] = p.micros()
			between := [2]int{l.host[i], l.host[j]}
			if c := cost[i][j]; c > 0 && (best[between] == 0 || c < best[between]) {
				best[between] = c
			}
		}
	}
	for i, row := range cost {
		for j, c := range row {
			switch {
			case l.host[i] == l.host[j]:
				row[j] = 1
			case c == 0:
				row[j] = best[[2]int{l.host[i], l.host[j]}]
			}
		}
	}
	return cost
}

// initOrder chooses the order of a new session, for which something was measured before or
// not. Then the log need not be told that it is the order of the ranks.
func (l *linkMonitor) initOrder(measured bool) {
	cost := l.costs()
	l.order = ring.Order(cost, l.host, l.site)
	l.findSlowLinks(cost)
	l.pendingOrder = nil
	if measured || !slices.IsSorted(l.order) {
		l.pendingOrder = &event.Order{Order: l.order, Reason: "the members have changed"}
	}
	if measured {
		l.pendingOrder.After = megabytes(slowestOf(cost, l.order))
	}
}

// updateOrder chooses another order if that is better by more than noise, in a session that
// has one.
func (l *linkMonitor) updateOrder() {
	cost := l.costs()
	was, _ := ring.Bottleneck(cost, l.order)
	if l.better(ring.Bound(cost, l.host), was) {
		next := ring.Order(cost, l.host, l.site)
		if now, _ := ring.Bottleneck(cost, next); l.better(now, was) {
			l.pendingOrder = &event.Order{Order: next, Before: megabytes(slowestOf(cost, l.order)), After: megabytes(slowestOf(cost, next)),
				Reason: l.changeReason(cost, was)}
			if l.measured(l.order) { // it was left for what it costs
				l.hysteresis, l.sinceChange = min(2*l.hysteresis, maxHysteresis), 0
			}
			l.order = next
		}
	}
	l.findSlowLinks(cost)
}

// measured reports whether all links of a ring between hosts are known.
func (l *linkMonitor) measured(order []int) bool {
	for i, from := range order {
		to := order[(i+1)%len(order)]
		if l.known[from][to] == 0 && l.host[from] != l.host[to] {
			return false
		}
	}
	return true
}

// better reports whether a cost is so much less than another that the order is changed.
func (l *linkMonitor) better(cost, than int64) bool { return cost*(100+l.hysteresis) < than*100 }

// changeReason says which link of the ring is the reason to leave it: one that nobody has measured, while
// there are orders of such as were, or the slowest, which costs so much.
func (l *linkMonitor) changeReason(cost [][]int64, most int64) string {
	for i, from := range l.order {
		switch to := l.order[(i+1)%len(l.order)]; {
		case cost[from][to] == 0 && l.host[from] != l.host[to]:
			return fmt.Sprintf("the link from rank %d to rank %d was not measured", from, to)
		case cost[from][to] >= most:
			return fmt.Sprintf("the link from rank %d to rank %d was the slowest", from, to)
		}
	}
	return "it is better"
}

// slowestOf returns the cost of the slowest of a ring's links that are known, 0 if none is.
func slowestOf(cost [][]int64, order []int) int64 {
	slowest := int64(0)
	for i, from := range order {
		slowest = max(slowest, cost[from][order[(i+1)%len(order)]])
	}
	return slowest
}

// findSlowLinks looks whether the ring avoids links that other algorithms would use.
func (l *linkMonitor) findSlowLinks(cost [][]int64) {
	slowest := slowestOf(cost, l.order)
	l.slowLinkElsewhere = false
	for _, row := range l.known {
		l.slowLinkElsewhere = l.slowLinkElsewhere || slowest > 0 && slices.Max(row).micros() > 2*slowest
	}
}

// megabytes turns a cost into megabytes a second; 0 where it is not known.
func megabytes(cost int64) float64 {
	if cost == 0 {
		return 0
	}
	return float64(1<<20) / float64(cost)
}

// measure takes in what the transport has measured since the last call, and returns what
// the others do not know yet. What counts is the better of two measurements: a step in
// which something else was slow is not taken for a slow link.
func (l *linkMonitor) measure() (n linkUpdates) {
	if l.meter == nil {
		return linkUpdates{}
	}
	for from, a := range l.meter.Arrived() {
		if a.Bytes < minProbe || l.host[from] == l.host[l.self] {
			continue
		}
		cost := max(minLinkCost, int64(float64(a.Time.Microseconds())*(1<<20)/float64(a.Bytes)))
		best := cost
		if l.last[from] > 0 {
			best = min(best, l.last[from])
		}
		l.last[from], l.best[from] = cost, linkCostOf(best)
	}
	told := 0
	for i := range l.best {
		from := (i + l.probeDistance) % len(l.best) // where there is no room for all it is each one's turn
		if l.best[from].differs(l.known[from][l.self]) && told < maxLinkUpdates {
			n.put(told, from, l.best[from])
			told++
		}
	}
	return n
}

// learn takes in what the ranks have measured.
func (l *linkMonitor) learn(reports []rankReport) {
	changed := false
	for to, s := range reports {
		s.links.each(func(from int, p linkCost) { changed = l.set(from, to, p) || changed })
	}
	if l.sinceChange++; l.sinceChange >= hysteresisSteps {
		l.hysteresis, l.sinceChange = max(l.hysteresis/2, minHysteresis), 0
	}
	if changed {
		l.updateOrder()
	}
}

// probe sends one probe, or two as long as links are not known, while the network has
// nothing else to do.
func (l *linkMonitor) probe() {
	n := len(l.host)
	if l.meter == nil {
		return
	}
	if l.probeBudget < maxFirstProbes*firstProbe {
		l.probeBudget += 2 * l.bytes / probeShare
	}
	sent := 0
	for range n - 1 {
		l.probeDistance = l.probeDistance%(n-1) + 1
		to := (l.self + l.probeDistance) % n
		p := l.known[l.self][to]
		size := probeLength(p)
		if l.host[to] == l.host[l.self] || p != 0 && (l.unknown() > 0 || to == l.next()) {
			continue
		}
		if size > l.probeBudget {
			return
		}
		l.meter.Probe(to, size)
		l.probeBudget -= size
		if sent++; sent == 2 || p != 0 {
			return
		}
	}
}

// next is the rank after this one in the ring, which measures the link by itself.
func (l *linkMonitor) next() int {
	return l.order[(slices.Index(l.order, l.self)+1)%len(l.order)]
}

// probeLength returns how long a probe over a link is.
func probeLength(p linkCost) int {
	if p == 0 {
		return firstProbe
	}
	return int(min(max(probeTime<<20/p.micros(), minProbe), probeBytes))
}

// isReporter reports whether this peer tells its launcher's log what all ranks know alike:
// that of the lowest rank does.
func isReporter(s *elastic.Session) bool {
	launcher := s.View.Members[s.Rank].Launcher
	return slices.IndexFunc(s.View.Members, func(m elastic.Member) bool { return m.Launcher == launcher }) == s.Rank
}
