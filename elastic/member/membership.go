package member

import (
	"slices"
)

// membership is the state that all parts of a Machine share: the machine's place in the group, the
// clock and the output. The parts read it, and queue messages and notices in the output. Only the
// Machine changes the view (Machine.enter, move, leave).
//
// membership is not a role of Paxos. The roles and their memory are acceptor and proposer.
type membership struct {
	cfg   Config
	phase phase
	tick  uint64 // number of ticks so far; the only clock
	out   Ready  // output since the last Ready

	view    View    // the present view; after the end of the membership, the first view without this member
	rank    int     // this member's rank in view; -1 while not inside
	history history // recent part of the lineage, up to view
}

// send queues a message with this member's view. The view in every message lets the receiver find
// out which of the two lags behind (I9). The caller must not change the message afterwards.
func (m *membership) send(msg Message) {
	msg.From, msg.Epoch, msg.View = m.cfg.Self.ID, m.view.Epoch, m.view.hash
	m.out.Messages = append(m.out.Messages, msg)
}

// notice queues a notice.
func (m *membership) notice(n Notice) { m.out.Notices = append(m.out.Notices, n) }

// large reports whether the view is too large for messages from each member to each other member.
// Then messages go along trees, and long proofs and whole views are sent on request only.
func (m *membership) large() bool { return len(m.view.Members) > m.cfg.Direct }

// members returns the IDs of a set that are members of the view, in rank order.
func (m *membership) members(s idSet) []ID {
	var ids []ID
	for _, id := range s {
		if m.view.Rank(id) >= 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int { return m.view.Rank(a) - m.view.Rank(b) })
	return ids
}

// marks returns which of the first n members are in a set, by rank. The caller must not change the
// result, as a result without marks is shared by all callers.
func (m *membership) marks(s idSet, n int) []bool {
	var ranks []int
	for _, id := range s {
		if rank := m.view.Rank(id); rank >= 0 && rank < n {
			ranks = append(ranks, rank)
		}
	}
	// Usually there are no marks. A shared slice avoids an allocation for each call in a large
	// group.
	if l := m.view.lookup; l != nil && len(ranks) == 0 {
		return l.none[:n]
	}
	marks := make([]bool, n)
	for _, rank := range ranks {
		marks[rank] = true
	}
	return marks
}

// sign returns this member's signature of an acceptance; nil without keys.
func (m *membership) sign(b Ballot, after Hash) []byte {
	if m.cfg.Keys == nil {
		return nil
	}
	return m.cfg.Keys.Sign(ballotText(b, after))
}

// idSet is a small sorted set of IDs. It is a slice, as the order of a map is random and the
// machine must be deterministic.
type idSet []ID

// has reports whether id is in the set.
func (i idSet) has(id ID) bool {
	_, found := slices.BinarySearch(i, id)
	return found
}

// add adds id, which may be in the set already.
func (i *idSet) add(id ID) {
	if at, found := slices.BinarySearch(*i, id); !found {
		*i = slices.Insert(*i, at, id)
	}
}

// remove removes id, if it is in the set.
func (i *idSet) remove(id ID) {
	if at, found := slices.BinarySearch(*i, id); found {
		*i = slices.Delete(*i, at, at+1)
	}
}
