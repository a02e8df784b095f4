package trainer

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/ring"
)

const (
	// minLinkBytes is the least size of the gradients, in bytes, for which links are measured. The
	// steps of smaller models depend on the latency of messages, not on bandwidth.
	minLinkBytes = 512 << 10
	// probeBytes is the usual length of a probe. The transport measures the time in which the last
	// three quarters of the probe arrive.
	probeBytes = 256 << 10
	// firstProbe is the length of the first probe over a link, which might be slow.
	firstProbe = 128 << 10
	// minProbe is the length of the shortest transfer that is measured.
	minProbe = 32 << 10
	// probeTime bounds the time of a probe, in microseconds, because it delays other messages on
	// the link (head-of-line blocking).
	probeTime = 250_000
	// longTransfer is the time from which on a transfer needs no second measurement of its link: other
	// traffic of a moment does not last as long, and each further step over a slow link would take as
	// long again.
	longTransfer = time.Second
	// probeShare limits probes to 1/probeShare of the bytes that a rank sends in a step.
	probeShare = 100
	// minLinkCost is the cost of a link of 4 Gbit/s, in microseconds per MiB. Measurements of
	// faster links reflect the processors at both ends rather than the link.
	minLinkCost = 2000
	// minHysteresis is the initial hysteresis: the percentage by which another order must be
	// better. Each change of a measured order doubles the hysteresis, up to maxHysteresis, and every
	// hysteresisSteps steps without a change halve it. So the order does not follow links that keep
	// changing a little, but it avoids at once a link that is far slower than the others.
	minHysteresis, maxHysteresis, hysteresisSteps = 33, 400, 100
	// maxFirstProbes is the number of unmeasured links that get probes on top of the budget.
	maxFirstProbes = 16
)

// linkCost is the cost of a link as sent on the wire: microseconds per MiB in a floating-point
// format with a mantissa of 4 bits, so that neighbouring values differ by about a tenth. 0 means
// unknown.
type linkCost uint8

// maxLinkCost is the largest linkCost, about four hours per MiB.
const maxLinkCost linkCost = 1 + 8*30 + 7

// linkCostOf rounds a cost in microseconds per MiB to the nearest linkCost. A cost below 8 counts as
// 8.
func linkCostOf(cost int64) linkCost {
	cost = max(cost, 8)
	shift := bits.Len64(uint64(cost)) - 4
	m := cost >> shift
	if shift > 0 {
		m += cost >> (shift - 1) & 1
	}
	// A mantissa of 16 becomes 8 with the next exponent.
	return linkCost(min(int64(maxLinkCost), 1+8*int64(shift)+m-8))
}

// micros returns the cost in microseconds per MiB, the inverse of linkCostOf; 0 for an unknown
// cost.
func (l linkCost) micros() int64 {
	if l == 0 {
		return 0
	}
	return (8 + int64(l-1)%8) << (int64(l-1) / 8)
}

// differs reports whether two costs differ by more than measurement noise, or only one is known.
func (l linkCost) differs(q linkCost) bool { return l == 0 != (q == 0) || l > q+1 || q > l+1 }

// linkUpdates are the measured links in a rank's report: up to maxLinkUpdates links to that rank. A
// word has two entries of 32 bits. An entry has the cost in the low 8 bits, and the sending rank
// plus 1 in the other bits; 0 means no entry.
type linkUpdates [maxLinkUpdates / 2]int64

// maxLinkUpdates is the number of links per report. A rank measures one or two links per step,
// and more only at the beginning of a session.
const maxLinkUpdates = 4

// put writes entry i, which must be empty.
func (l *linkUpdates) put(i, from int, p linkCost) {
	l[i/2] |= (int64(from+1)<<8 | int64(p)) << (i % 2 * 32)
}

// each calls visit for each entry.
func (l linkUpdates) each(visit func(from int, p linkCost)) {
	for i := range maxLinkUpdates {
		if w := uint32(l[i/2] >> (i % 2 * 32)); w != 0 {
			visit(int(w>>8)-1, linkCost(w))
		}
	}
}

// linkMonitor measures the links between hosts and chooses the order of the ring by their costs.
// All ranks of a session know the same costs, and so choose the same order. A link is directed,
// from a sending to a receiving rank; the receiver measures it.
type linkMonitor struct {
	// bytes is the number of bytes of gradients that a step reduces.
	bytes int
	self  int          // this peer's rank
	ids   []elastic.ID // by rank
	host  []int        // by rank
	site  []int        // by rank; nil where sites are not known
	known [][]linkCost // costs of links [from][to], equal at all ranks; 0 within a host
	// order is the current order of the ring.
	order             []int
	slowLinkElsewhere bool         // a link outside the ring is far slower than the links of the ring
	hysteresis        int64        // percentage by which another order must be better
	sinceChange       int          // steps since hysteresis changed
	pendingOrder      *event.Order // order to be logged; nil for none
	// toldCost and toldAt have what was logged of the links to this peer, and when, by the sender. fresh is set if there
	// may be more to log.
	toldCost map[elastic.ID]linkCost
	toldAt   map[elastic.ID]time.Time
	fresh    bool

	// Measurements of this peer.
	meter transport.Meter // nil if this peer measures nothing
	last  []int64         // last measured costs of the links to this peer, by rank
	best  []linkCost      // lower of the last two measurements, or a long one, by rank
	// toSelf has the agreed costs of the links to this peer, for the next session.
	toSelf      map[elastic.ID]linkCost
	probeBudget int // bytes that this peer may send as probes
	// probeDistance is the distance from this peer's rank to the rank that it probes next, modulo
	// the number of ranks.
	probeDistance int
}

// spansHosts reports whether the session has members on more than one host.
func (l *linkMonitor) spansHosts() bool { return slices.Max(l.host) > 0 }

// row returns the known costs of the links from the members of a view to this peer.
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
	// All ranks have the same rows, so all have the same costs.
	measured := false
	for to, row := range rows {
		for from, p := range row {
			measured = l.set(from, to, p) || measured
		}
	}
	l.meter, l.last, l.best = nil, make([]int64, n), slices.Clone(rows[s.Rank])
	places := l.host
	if l.site != nil {
		places = l.site // one rank of each site is in the ring
	}
	if l.bytes >= minLinkBytes && slices.Max(places) >= 2 { // two hosts or sites have only one order
		l.meter = s.Comm.Meter()
	}
	l.hysteresis, l.sinceChange = minHysteresis, 0
	l.probeBudget, l.probeDistance = firstProbe*min(l.unknown(), maxFirstProbes), 0
	l.initOrder(measured)
}

// set records the agreed cost of a link if it connects two hosts of the session.
func (l *linkMonitor) set(from, to int, p linkCost) (changed bool) {
	if from < 0 || from >= len(l.host) || l.host[from] == l.host[to] || l.known[from][to] == p {
		return false
	}
	l.known[from][to] = p
	if to == l.self {
		l.toSelf[l.ids[from]], l.fresh = p, true
	}
	return true
}

// toldPeriod is the least time between two reports of a link.
const toldPeriod = 10 * time.Second

// dueEvents returns what is to be logged of the links to this peer at now: those whose agreed cost has changed by a fifth or more.
func (l *linkMonitor) dueEvents(now time.Time) (all []event.Link) {
	if !l.fresh {
		return nil
	}
	l.fresh = false
	if l.toldCost == nil {
		l.toldCost, l.toldAt = make(map[elastic.ID]linkCost), make(map[elastic.ID]time.Time)
	}
	for from, id := range l.ids {
		p := l.known[from][l.self]
		a, b := p.micros(), l.toldCost[id].micros()
		switch {
		case p == 0 || 5*max(a, b) < 6*min(a, b):
		case now.Sub(l.toldAt[id]) < toldPeriod:
			l.fresh = true
		default:
			l.toldCost[id], l.toldAt[id] = p, now
			all = append(all, event.Link{From: id.Short(), MBs: float64(1<<20) / float64(a)})
		}
	}
	return all
}

// unknown returns the number of unmeasured links from this peer.
func (l *linkMonitor) unknown() int {
	n := 0
	for to, p := range l.known[l.self] {
		if p == 0 && l.host[to] != l.host[l.self] {
			n++
		}
	}
	return n
}

// costs returns the cost of every link, in microseconds per MiB. A link within a host costs 1. An
// unmeasured link costs as much as the best link between the same hosts, or 0 if no link between
// these hosts is measured.
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
	// Second pass: fill the gaps with the best known cost between the same two hosts.
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

// initOrder chooses the order of a new session. measured is true if a link was measured in an
// earlier session. If not, the order is usually the order of the ranks, which is not logged.
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

// updateOrder changes the order within a session if another order is better by more than the
// hysteresis. The lower bound for any order (ring.Bound) is cheap to compute, and saves the search
// if even the best order could not be good enough.
func (l *linkMonitor) updateOrder() {
	cost := l.costs()
	was, _ := ring.Bottleneck(cost, l.order)
	if l.better(ring.Bound(cost, l.host), was) {
		next := ring.Order(cost, l.host, l.site)
		if now, _ := ring.Bottleneck(cost, next); l.better(now, was) {
			l.pendingOrder = &event.Order{Order: next, Before: megabytes(slowestOf(cost, l.order)), After: megabytes(slowestOf(cost, next)),
				Reason: l.changeReason(cost, was)}
			if l.measured(l.order) { // otherwise the order may change only because a link is unmeasured
				l.hysteresis, l.sinceChange = min(2*l.hysteresis, maxHysteresis), 0
			}
			l.order = next
		}
	}
	l.findSlowLinks(cost)
}

// measured reports whether all links of a ring between hosts are measured.
func (l *linkMonitor) measured(order []int) bool {
	for i, from := range order {
		to := order[(i+1)%len(order)]
		if l.known[from][to] == 0 && l.host[from] != l.host[to] {
			return false
		}
	}
	return true
}

// better reports whether cost is lower than another cost by more than the hysteresis.
func (l *linkMonitor) better(cost, than int64) bool { return cost*(100+l.hysteresis) < than*100 }

// changeReason describes the reason to change the current order: the first link in it that is
// unmeasured or slowest. most is the cost of the slowest link.
func (l *linkMonitor) changeReason(cost [][]int64, most int64) string {
	for i, from := range l.order {
		switch to := l.order[(i+1)%len(l.order)]; {
		case cost[from][to] == 0 && l.host[from] != l.host[to]:
			return fmt.Sprintf("the link from rank %d to rank %d was not measured", from, to)
		case cost[from][to] >= most:
			return fmt.Sprintf("the link from rank %d to rank %d was the slowest", from, to)
		}
	}
	return "its links are faster"
}

// slowestOf returns the highest known cost on a ring; 0 if none is known.
func slowestOf(cost [][]int64, order []int) int64 {
	slowest := int64(0)
	for i, from := range order {
		slowest = max(slowest, cost[from][order[(i+1)%len(order)]])
	}
	return slowest
}

// findSlowLinks reports in slowLinkElsewhere whether the ring avoids a slow link that other
// algorithms would use.
func (l *linkMonitor) findSlowLinks(cost [][]int64) {
	slowest := slowestOf(cost, l.order)
	l.slowLinkElsewhere = false
	for _, row := range l.known {
		l.slowLinkElsewhere = l.slowLinkElsewhere || slowest > 0 && slices.Max(row).micros() > 2*slowest
	}
}

// megabytes converts a cost into megabytes a second; 0 where the cost is not known.
func megabytes(cost int64) float64 {
	if cost == 0 {
		return 0
	}
	return float64(1<<20) / float64(cost)
}

// measure evaluates the transport's measurements since the last call, and returns the costs that
// the other ranks do not know yet. It uses the lower of two successive costs, so that a link does
// not look slow after one step with other traffic, unless the transfer was long.
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
		if l.last[from] > 0 && a.Time < longTransfer {
			best = min(best, l.last[from])
		}
		l.last[from], l.best[from] = cost, linkCostOf(best)
	}
	told := 0
	for i := range l.best {
		from := (i + l.probeDistance) % len(l.best) // ranks take turns, because a report has no room for all
		if l.best[from].differs(l.known[from][l.self]) && told < maxLinkUpdates {
			n.put(told, from, l.best[from])
			told++
		}
	}
	return n
}

// learn records the measurements of all ranks, decays the hysteresis, and updates the order.
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

// probe sends one probe, or two as long as there are unmeasured links. It is called while the
// step is computed and the network is idle.
func (l *linkMonitor) probe() {
	n := len(l.host)
	if l.meter == nil {
		return
	}
	// Each step adds 1/probeShare of the bytes that a ring sends to the budget, up to a limit.
	if l.probeBudget < maxFirstProbes*firstProbe {
		l.probeBudget += 2 * l.bytes / probeShare
	}
	sent := 0
	for range n - 1 {
		l.probeDistance = l.probeDistance%(n-1) + 1
		to := (l.self + l.probeDistance) % n
		p := l.known[l.self][to]
		size := probeLength(p)
		// Skip links within the host. As long as there are unmeasured links, skip measured links;
		// after that, skip only the link that the ring measures.
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

// next returns the rank after this one in the ring. The ring's own traffic measures that link.
func (l *linkMonitor) next() int {
	return l.order[(slices.Index(l.order, l.self)+1)%len(l.order)]
}

// probeLength returns the length of a probe over a link of cost p, in bytes.
func probeLength(p linkCost) int {
	if p == 0 {
		return firstProbe
	}
	return int(min(max(probeTime<<20/p.micros(), minProbe), probeBytes))
}

// isReporter reports whether this peer logs events that are equal at all ranks. Only the lowest rank
// of each launcher logs them, so that the event log of each launcher has one entry.
func isReporter(s *elastic.Session) bool {
	launcher := s.View.Members[s.Rank].Launcher
	return slices.IndexFunc(s.View.Members, func(m elastic.Member) bool { return m.Launcher == launcher }) == s.Rank
}
