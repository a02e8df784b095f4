package trace

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

// Hosts knows who the peers of a job are, and converts times of all hosts to the clock of one of them: the host of the first peer
// whose elrun has told its system, or else of the first peer. It follows from the events Member and Clock. Between two events
// Clock the offset of two hosts changes evenly. The zero value knows nothing, and then takes all hosts to have one clock.
//
// A first pass over logs that adds the events of these two kinds makes the second pass exact, because an offset also holds for the
// time before it was measured:
//
//	var hosts trace.Hosts
//	lines, err := timeline.Events(hosts.Add, trace.HostKinds(), logs...)
type Hosts struct {
	members map[string]event.Member // by short ID
	first   string                  // host to whose clock the times are converted
	sure    bool                    // the elrun of this host has told of it
	pairs   map[pair]*offsets
	routes  map[string][]leg // from the first host to others; nil if they are to be found anew
}

// HostKinds returns the kinds of the events that Hosts needs.
func HostKinds() []string { return []string{event.Member{}.Name(), event.Clock{}.Name()} }

// pair is two hosts in the order of their names.
type pair struct{ a, b string }

// offsets has by how much the clock of the host b of a pair is ahead of that of a, over the time of a.
type offsets struct{ list []measure }

// measure is an offset at a time.
type measure struct {
	at            int64
	offset, error time.Duration
}

// leg is a pair on the way to a host, in one of the directions.
type leg struct {
	pair pair
	back bool // from b to a
}

const (
	// maxMeasures bounds the measures of a pair. If there are more, the better one of each two is kept.
	maxMeasures = 2048
	// maxPeers bounds the peers of a trace, and maxPairs the pairs of hosts.
	maxPeers = 1 << 14
	maxPairs = 1 << 12
)

// Add adds an event. It ignores events of other kinds than HostKinds.
func (h *Hosts) Add(e event.Event) {
	switch b := e.Body.(type) {
	case event.Member:
		h.place(b)
	case event.Clock:
		h.measured(e, b)
	}
}

// place notes who a peer is. What its own elrun tells counts more.
func (h *Hosts) place(b event.Member) {
	if h.members == nil {
		h.members = make(map[string]event.Member)
	}
	known, is := h.members[b.Who]
	if b.Who == "" || is && (known.PID != 0 || b.PID == 0) || !is && len(h.members) >= maxPeers {
		return
	}
	h.members[b.Who] = b
	if host := h.host(b.Who); host != "" && (h.first == "" || !h.sure && b.OS != "") {
		h.first, h.sure = host, b.OS != ""
	}
	h.routes = nil
}

// host returns the host of a peer; "" if it is unknown.
func (h *Hosts) host(peer string) string {
	m := h.members[peer]
	return cmp.Or(m.Machine, m.Host)
}

// measured notes an offset.
func (h *Hosts) measured(e event.Event, b event.Clock) {
	p := pair{h.host(e.Peer), h.host(b.Who)}
	m := measure{nanoseconds(e.Time), milliseconds(b.OffsetMS), max(0, milliseconds(b.ErrorMS))}
	if p.a == "" || p.b == "" || p.a == p.b || m.at == 0 {
		return
	}
	if p.a > p.b {
		p.a, p.b, m.at, m.offset = p.b, p.a, m.at+int64(m.offset), -m.offset
	}
	o := h.pairs[p]
	if o == nil {
		if len(h.pairs) >= maxPairs {
			return
		}
		if h.pairs == nil {
			h.pairs = make(map[pair]*offsets)
		}
		o = &offsets{}
		h.pairs[p], h.routes = o, nil
	}
	o.add(m)
}

// maxOffset bounds an offset. Clocks differ by no more.
const maxOffset = 1000 * 24 * time.Hour

// milliseconds returns a duration of an event.
func milliseconds(ms float64) time.Duration {
	most := float64(maxOffset / time.Millisecond)
	return time.Duration(max(-most, min(most, finite(ms))) * float64(time.Millisecond))
}

// add adds a measure.
func (o *offsets) add(m measure) {
	i, _ := slices.BinarySearchFunc(o.list, m.at, func(m measure, at int64) int { return cmp.Compare(m.at, at) })
	o.list = slices.Insert(o.list, i, m)
	if len(o.list) <= maxMeasures {
		return
	}
	kept := o.list[:0]
	for i := 0; i+1 < len(o.list); i += 2 {
		better := o.list[i]
		if o.list[i+1].error < better.error {
			better = o.list[i+1]
		}
		kept = append(kept, better)
	}
	o.list = append(kept, o.list[len(o.list)-1])
}

// at returns the offset at a time, and its error: between two measures the offset changes evenly.
func (o *offsets) at(at int64) (offset, err time.Duration) {
	i, _ := slices.BinarySearchFunc(o.list, at, func(m measure, at int64) int { return cmp.Compare(m.at, at) })
	switch {
	case i == 0:
		return o.list[0].offset, o.list[0].error
	case i == len(o.list):
		return o.list[i-1].offset, o.list[i-1].error
	}
	before, after := o.list[i-1], o.list[i]
	part := float64(at-before.at) / float64(after.at-before.at)
	return before.offset + time.Duration(part*float64(after.offset-before.offset)), max(before.error, after.error)
}

// Offset returns by how much the clock of a peer's host is ahead at a time on it, the greatest error of that, and whether
// it is known. It is 0 for the host to whose clock times are converted.
func (h *Hosts) Offset(peer string, at time.Time) (offset, err time.Duration, ok bool) {
	host := h.host(peer)
	if host == "" {
		return 0, 0, false
	}
	route, ok := h.route(host)
	// The offset is known over the time of the first host, which the offset gives. It changes slowly.
	for range rounds {
		offset, err = h.along(route, nanoseconds(at)-int64(offset))
	}
	return offset, err, ok
}

// rounds is the number of rounds after which an equation for a time is solved, as clocks differ in speed by far less than a thousandth.
const rounds = 3

// along returns the offset of the last host of a route at a time on the clock of its first.
func (h *Hosts) along(route []leg, at int64) (offset, err time.Duration) {
	for _, l := range route {
		o, e := time.Duration(0), time.Duration(0)
		here := at + int64(offset)
		if l.back {
			for range rounds {
				o, e = h.pairs[l.pair].at(here - int64(o))
			}
			o = -o
		} else {
			o, e = h.pairs[l.pair].at(here)
		}
		offset, err = offset+o, err+e
	}
	return offset, err
}

// route returns the shortest way to a host over pairs with measures, and whether there is one.
func (h *Hosts) route(host string) ([]leg, bool) {
	if h.routes == nil {
		h.routes = map[string][]leg{h.first: {}}
		for reached := []string{h.first}; len(reached) > 0; reached = reached[1:] {
			reached = append(reached, h.reach(reached[0])...)
		}
	}
	route, ok := h.routes[host]
	return route, ok
}

// reach adds the routes of the hosts next to a reached one, and returns those hosts.
func (h *Hosts) reach(from string) (reached []string) {
	for _, p := range slices.SortedFunc(maps.Keys(h.pairs), func(p, q pair) int { return cmp.Or(cmp.Compare(p.a, q.a), cmp.Compare(p.b, q.b)) }) {
		to := p.b
		if from == p.b {
			to = p.a
		}
		if _, known := h.routes[to]; !known && (from == p.a || from == p.b) {
			h.routes[to] = append(slices.Clone(h.routes[from]), leg{p, from == p.b})
			reached = append(reached, to)
		}
	}
	return reached
}

// convert returns a time of a peer in nanoseconds since 1970 on the clock of the trace; 0 if there is none.
func (h *Hosts) convert(peer string, at time.Time) int64 {
	ns := nanoseconds(at)
	if ns == 0 {
		return 0
	}
	offset, _, _ := h.Offset(peer, at)
	return max(1, ns-int64(offset))
}

// maxTime bounds the times of a trace, so that no sum overflows.
const maxTime = 1 << 62

// nanoseconds returns a time in nanoseconds since 1970; 0 if it is before, or none.
func nanoseconds(t time.Time) int64 {
	if s := t.Unix(); s < 0 || s > maxTime/int64(time.Second) {
		return 0
	}
	return min(t.UnixNano(), maxTime)
}
