package trace

import (
	"slices"

	"github.com/elrun/elrun/event"
)

// track is a track of the trace. Its times do not decrease: what would begin before the latest time begins there.
type track struct {
	id uint64
	at int64 // latest time
}

// moves returns a time, or the latest one of the track if that is later, which the track then has.
func (t *track) moves(at int64) int64 {
	t.at = max(t.at, at)
	return t.at
}

const (
	// firstMadeUp is the first ID of a process without a known one. Linux has only smaller ones.
	firstMadeUp = 1 << 22
	// maxLanes bounds the tracks "state" of a peer, and maxCounters its counters.
	maxLanes    = 8
	maxCounters = 24
)

// process is a process of the trace: that of a peer, or "job".
type process struct {
	id       int64 // as the trace has it
	name     string
	rank     int64 // place among the processes
	label    string
	main     string // name of its thread
	own      track  // instants
	thread   track
	lanes    []*track // tracks "state"
	counters map[string]*track
}

// tracks has the processes of a trace, and gives IDs.
type tracks struct {
	to     encoder
	last   uint64         // ID of a track that was given
	used   map[int64]bool // IDs of processes
	madeUp int64
}

// next returns the ID of a new track.
func (t *tracks) next() uint64 {
	t.last++
	return t.last
}

// root writes that processes and threads are in the order of their ranks.
func (t *tracks) root(at int64) {
	t.to.send(at, packetDescriptor, appendVarint(appendVarint(appendVarint(nil, trackID, 0), trackProcessOrder, orderExplicit), trackThreadOrder, orderExplicit))
}

// open writes the descriptors of a process and its thread. pid is 0 if it is not known.
func (t *tracks) open(p *process, pid, at int64) {
	if t.used == nil {
		t.used = make(map[int64]bool)
	}
	p.id = pid
	if pid <= 0 || pid >= firstMadeUp || t.used[pid] {
		p.id = firstMadeUp + t.madeUp
		t.madeUp++
	}
	t.used[p.id] = true
	p.own.id, p.thread.id = t.next(), t.next()
	about := appendText(appendVarint(nil, processID, uint64(p.id)), processName, p.name)
	if p.label != "" {
		about = appendText(about, processLabel, p.label)
	}
	b := appendBytes(appendVarint(nil, trackID, p.own.id), trackProcess, about)
	t.to.send(p.own.moves(at), packetDescriptor, appendVarint(b, trackRank, uint64(p.rank)))
	about = appendVarint(appendVarint(nil, threadProcess, uint64(p.id)), threadID, uint64(p.id))
	about = appendText(about, threadName, p.main)
	t.to.send(p.thread.moves(at), packetDescriptor, appendBytes(appendVarint(nil, trackID, p.thread.id), trackThread, about))
}

// child writes the descriptor of a further track of a process, as its fields say.
func (t *tracks) child(p *process, name string, at int64, fields []byte) *track {
	c := &track{id: t.next()}
	b := appendText(appendVarint(appendVarint(nil, trackID, c.id), trackParent, p.own.id), trackName, name)
	t.to.send(c.moves(at), packetDescriptor, append(b, fields...))
	return c
}

// lane returns a track "state" of a process that is free at a time.
func (t *tracks) lane(p *process, at int64) *track {
	best := -1
	for i, l := range p.lanes {
		if l.at <= at {
			return l
		}
		if best < 0 || l.at < p.lanes[best].at {
			best = i
		}
	}
	if len(p.lanes) >= maxLanes {
		return p.lanes[best]
	}
	l := t.child(p, "state", at, nil)
	p.lanes = append(p.lanes, l)
	return l
}

// slice writes a slice beside the steps of a process.
func (t *tracks) slice(p *process, begin, end int64, m mark) {
	l := t.lane(p, begin)
	if end <= l.at {
		return
	}
	t.to.mark(typeBegin, l.id, l.moves(begin), m)
	t.to.end(l.id, l.moves(end), nil)
}

// instant writes an instant of a process.
func (t *tracks) instant(p *process, at int64, m mark) {
	t.to.mark(typeInstant, p.own.id, p.own.moves(at), m)
}

// unit is the unit of a counter.
type unit struct {
	code uint64 // 0 for none of those of the format
	name string
}

// count writes a value of a counter of a process. Of too many counters it leaves out the last ones.
func (t *tracks) count(p *process, name string, u unit, at int64, value float64) {
	c := p.counters[name]
	if c == nil {
		if p.counters == nil {
			p.counters = make(map[string]*track)
		}
		if len(p.counters) >= maxCounters {
			return
		}
		var about []byte
		if u.code != 0 {
			about = appendVarint(about, counterUnit, u.code)
		}
		if u.name != "" {
			about = appendText(about, counterUnitName, u.name)
		}
		c = t.child(p, name, at, appendBytes(nil, trackCounter, about))
		p.counters[name] = c
	}
	t.to.count(c.id, c.moves(at), value)
}

// peer is a peer of the trace.
type peer struct {
	process
	share   int    // latest value of its counter
	epoch   uint64 // of its last step
	ended   int64  // when its last step has ended
	usage   event.Usage
	metered int64 // time of usage
}

// once remembers the latest of many keys, and tells which are new.
type once[K comparable] struct{ seen []K }

// maxSeen bounds the keys that are remembered.
const maxSeen = 512

// first reports whether a key is new.
func (o *once[K]) first(key K) bool {
	if slices.Contains(o.seen, key) {
		return false
	}
	if len(o.seen) >= maxSeen {
		o.seen = slices.Delete(o.seen, 0, maxSeen/2)
	}
	o.seen = append(o.seen, key)
	return true
}
