package collective

import (
	"slices"

	"github.com/elrun/elrun/collective/transport"
)

// A receive from AnySource or with AnyTag, and a Probe, choose their message when it has arrived.
// Each of them has a matching in the list of its sequence until then. The transport reports the
// messages that no receive has asked for (Transport.Peek). Three rules keep MPI's order of
// receives, in which a message goes to the oldest receive that asks for it:
//
//   - A matching does not choose a message under a key (sender and tag) whose ticket lock another
//     receive holds: the message may be the next segment of that receive's message.
//   - A matching does not choose a message that an older receive in the list asks for, too.
//   - A receive with a sender and a tag gets a matching of its own, instead of a ticket, if a
//     receive in the list asks for the same key.
//
// The list and the locks change while Peek waits. So a matching peeks with a copy of what it must
// not choose, and begins again when the copy is out of date.

// matching is a receive or a Probe that has not chosen its message.
type matching struct {
	from  int           // rank of the transport, or AnySource
	tag   int           // or AnyTag
	takes bool          // it receives the message, unlike a Probe
	stale chan struct{} // closed when the last result of exclusions is out of date; nil before and after
}

// asksFor reports whether m asks for messages under a key of receives.
func (m *matching) asksFor(k pointKey) bool {
	return !k.sending && (m.from == AnySource || m.from == k.peer) && (m.tag == AnyTag || uint32(m.tag) == k.tag)
}

// expire ends the validity of the exclusions of m.
func (m *matching) expire() {
	if m.stale != nil {
		close(m.stale)
		m.stale = nil
	}
}

// exclusions returns a channel that is closed when the result is out of date, and a function that
// reports whether m, the matching of o, may choose a message.
func (m *matching) exclusions(o *operation) (stale <-chan struct{}, mayChoose func(from int, e transport.Envelope) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	own, comm := *m, o.id
	locked := make(map[pointKey]bool)
	for k := range o.seq.pointLocks {
		locked[k] = own.asksFor(k)
	}
	var older []matching
	for _, m := range o.seq.matchings[:slices.Index(o.seq.matchings, m)] {
		if m.takes {
			older = append(older, *m)
		}
	}
	m.expire()
	m.stale = make(chan struct{})
	return m.stale, func(from int, e transport.Envelope) bool {
		k := pointKey{peer: from, tag: e.Seq &^ pointBit}
		return e.Comm == comm && e.Seq&pointBit != 0 && own.asksFor(k) && !locked[k] &&
			!slices.ContainsFunc(older, func(m matching) bool { return m.asksFor(k) })
	}
}

// wait waits for a message that m, the matching of o, may choose. If o receives the message, r is the
// rest of the call: a receive from that sender with that tag, which holds the ticket lock. The caller
// must end r.
func (m *matching) wait(o *operation) (got Message, r *operation, err error) {
	sources := []int{m.from}
	if m.from == AnySource {
		sources = o.transportRanks()
	}
	for {
		stale, mayChoose := m.exclusions(o)
		from, e, err := o.t.Peek(sources, stale, mayChoose)
		if err != nil {
			return Message{}, nil, err
		}
		if from < 0 {
			continue // stale
		}
		if r, ok := m.choose(o, from, e, stale); ok {
			o.recordProgress()
			got = Message{From: o.commRank(from), Tag: int(e.Seq &^ pointBit), Len: int(e.Call.Count), Type: e.Call.Type}
			return got, r, nil
		}
	}
}

// choose ends m, the matching of o, with a message of rank from under e, and begins the rest of a
// receive. It does nothing and returns false if the exclusions are out of date: then another receive
// may have begun to receive the message.
func (m *matching) choose(o *operation, from int, e transport.Envelope, stale <-chan struct{}) (r *operation, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.stale != stale {
		return nil, false
	}
	o.seq.dropMatching(m)
	if !m.takes {
		return nil, true
	}
	r = o.register(false)
	r.describe(o.Comm, &o.env.Call)
	r.peer, r.env.Seq, r.blocking = from, e.Seq, o.blocking
	if r.blocking && !o.seq.part {
		o.blocked++ // until the end of r; the program makes one call, not two
	}
	o.seq.lockFor(r, pointKey{peer: from, tag: e.Seq &^ pointBit})
	return r, true
}

// receive receives the message that m, the matching of o, chooses.
func (m *matching) receive(o *operation, buf []byte) (Message, error) {
	got, r, err := m.wait(o)
	if err != nil {
		return got, err
	}
	err = r.forSegments(buf, func(segment []byte) error {
		err := r.recvSegment(got.From, segment)
		o.recordProgress()
		return err
	})
	r.end(err)
	return got, err
}
