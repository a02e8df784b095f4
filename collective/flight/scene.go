package flight

import (
	"cmp"
	"maps"
	"slices"
)

// place is a place in the order of collective calls that all ranks of a communicator share.
type place struct {
	comm uint64
	seq  uint32
}

// scene is one session as the records of its members show it. Ranks are ranks of the transport.
type scene struct {
	epoch   uint64
	members []string            // short IDs by rank
	records []*Record           // by rank, nil for a rank without a record, or whose process has ended
	entered []bool              // by rank: the record has the session
	groups  map[uint64][]int    // ranks of the communicators from Split
	calls   map[place][]*Call   // collective calls by rank, nil for a rank that has not made the call
	last    []map[uint64]uint32 // by rank: number of the last collective call of each communicator
}

// read fills in the records and the scenes of j.
func (j *judge) read(records []Record) {
	j.records = newestRecords(records)
	j.scenes = scenesOf(j.records)
	j.remains = make(map[string]*Record)
	for _, r := range j.records {
		if r.Ended {
			j.remains[r.Peer] = r
		}
	}
}

// newestRecords returns the newest record of each peer, in the order of the peers' names.
func newestRecords(records []Record) []*Record {
	byPeer := make(map[string]*Record)
	for i := range records {
		r := &records[i]
		if old := byPeer[r.Peer]; old == nil || r.Taken.After(old.Taken) {
			byPeer[r.Peer] = r
		}
	}
	var out []*Record
	for _, name := range slices.Sorted(maps.Keys(byPeer)) {
		out = append(out, byPeer[name])
	}
	return out
}

// scenesOf returns the sessions of the records, the latest first.
func scenesOf(records []*Record) []*scene {
	byEpoch := make(map[uint64]*scene)
	for _, r := range records {
		for i := range r.Sessions {
			s := &r.Sessions[i]
			if byEpoch[s.Epoch] == nil {
				byEpoch[s.Epoch] = newScene(s)
			}
			byEpoch[s.Epoch].enter(r, s)
		}
	}
	all := slices.SortedFunc(maps.Values(byEpoch), func(a, b *scene) int { return cmp.Compare(b.epoch, a.epoch) })
	for _, s := range all {
		for _, r := range records {
			s.add(r)
		}
	}
	return all
}

// newScene returns the scene of a session, without records.
func newScene(s *Session) *scene {
	n := len(s.Members)
	out := &scene{epoch: s.Epoch, members: s.Members, records: make([]*Record, n), entered: make([]bool, n),
		groups: make(map[uint64][]int), calls: make(map[place][]*Call), last: make([]map[uint64]uint32, n)}
	for rank := range n {
		out.last[rank] = make(map[uint64]uint32)
	}
	return out
}

// enter adds a member that has entered the session. A session of other members, which no correct peer writes, is ignored.
func (s *scene) enter(r *Record, in *Session) {
	if !slices.Equal(s.members, in.Members) || s.records[in.Rank] != nil {
		return
	}
	if !r.Ended { // who has ended is missing everywhere
		s.records[in.Rank], s.entered[in.Rank] = r, true
	}
	for _, g := range in.Groups {
		s.groups[g.Comm] = g.Ranks
	}
}

// add adds the calls of a record in this session. The peer may be a member that has not entered the session.
func (s *scene) add(r *Record) {
	rank := slices.Index(s.records, r)
	switch at := slices.Index(s.members, r.Peer); {
	case rank >= 0:
	case r.Ended && at >= 0:
		rank = at
	case at >= 0 && s.records[at] == nil:
		s.records[at] = r
		return
	default:
		return
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.Epoch != s.epoch || c.Point != nil {
			continue
		}
		at := place{c.Comm, c.Seq}
		if s.calls[at] == nil {
			s.calls[at] = make([]*Call, len(s.members))
		}
		s.calls[at][rank] = c
		if !r.Ended {
			s.last[rank][c.Comm] = max(s.last[rank][c.Comm], c.Seq)
		}
	}
}

// places returns the places of all collective calls, by communicator and number.
func (s *scene) places() []place {
	return slices.SortedFunc(maps.Keys(s.calls), func(a, b place) int { return cmp.Or(cmp.Compare(a.comm, b.comm), cmp.Compare(a.seq, b.seq)) })
}

// ranksOf returns the ranks of a communicator.
func (s *scene) ranksOf(comm uint64) []int {
	if ranks := s.groups[comm]; ranks != nil {
		return ranks
	}
	all := make([]int, len(s.members))
	for rank := range all {
		all[rank] = rank
	}
	return all
}

// leastWait is the time in milliseconds from which a call in progress counts as one that waits. Records of several
// peers are not taken at the same instant, so shorter waits show nothing.
const leastWait = 200

// blocked returns the call in which a rank is blocked, nil if there is none: the oldest one whose end the program awaits, or else the
// oldest collective call.
func (s *scene) blocked(rank int) *Call {
	r := s.records[rank]
	if r == nil || !s.entered[rank] {
		return nil
	}
	var background *Call
	for i := range r.Calls {
		c := &r.Calls[i]
		switch {
		case c.Epoch != s.epoch || !c.Open || c.MS < leastWait:
		case !c.Background:
			return c
		case background == nil && c.Point == nil:
			background = c
		}
	}
	return background
}

// missing returns the ranks for which a call waits because they have not begun it, as far as the records tell. A rank without a
// record is one of them.
func (s *scene) missing(c *Call, self int) (ranks []int) {
	if c.Point != nil {
		if p := c.Point.Peer; p >= 0 && p < len(s.members) && p != self {
			return []int{p}
		}
		return nil
	}
	for _, rank := range s.ranksOf(c.Comm) {
		if rank != self && s.last[rank][c.Comm] < c.Seq {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
