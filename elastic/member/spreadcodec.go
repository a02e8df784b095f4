package member

import (
	"encoding/binary"
	"fmt"
)

// appendSpread appends the fields of a Branch or a Gather. A message within m omits its view if m
// has the same view, which is the usual case. So a Gather of thousands of answers need not contain
// a hash of 32 bytes for each answer.
func appendSpread(b []byte, m Message, parts part) []byte {
	s := m.Spread
	// Decode refuses the bytes then: the fields of the spread are missing.
	if s == nil || parts&partBranch != 0 && s.Inner == nil {
		return b // the caller's mistake
	}
	b = appendString(b, string(s.Author))
	b = binary.AppendUvarint(b, s.Seq)
	b = append(b, s.In[:]...)
	if parts&partBranch != 0 {
		return appendRanks(appendInner(b, m, *s.Inner), s.Ranks)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Answers)))
	for _, a := range s.Answers {
		b = appendInner(appendRanks(b, a.Ranks), m, *a.Message)
	}
	return b
}

// appendInner appends a message within outer.
func appendInner(b []byte, outer, m Message) []byte {
	b = append(b, byte(m.Kind))
	other := m.Epoch != outer.Epoch || m.View != outer.View
	b = appendBool(b, other)
	if other {
		b = append(binary.AppendUvarint(b, m.Epoch), m.View[:]...)
	}
	parts, _ := layout(m.Kind)
	return appendParts(b, m, parts)
}

// appendRanks appends ascending ranks as runs: the number of ranks skipped, and the number of ranks
// that follow. A tree splits the ranks into ranges of neighbours, so thousands of ranks are a few
// runs.
func appendRanks(b []byte, ranks []uint32) []byte {
	var runs []uint64
	next := uint32(0)
	for i, rank := range ranks {
		// The first rank begins a run even if it is 0: this run skips no rank.
		if i == 0 || rank != next {
			runs = append(runs, uint64(rank-next), 0)
		}
		runs[len(runs)-1]++
		next = rank + 1
	}
	b = binary.AppendUvarint(b, uint64(len(runs)/2))
	for _, n := range runs {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// ranks decodes the output of appendRanks. A run must not be empty and must not continue the run
// before it, so that each set of ranks has one encoding. The bounds are checked before memory is
// allocated: a few bytes can announce many ranks.
func (d *decoder) ranks() []uint32 {
	var ranks []uint32
	next := uint64(0)
	for i := range d.length(MaxMembers) {
		skip, n := d.uint(), d.uint()
		if d.err != nil {
			return nil
		}
		// skip and n are bounded before the sum, which could otherwise wrap around.
		if skip > MaxMembers || n > MaxMembers || next+skip+n > MaxMembers {
			d.fail(fmt.Errorf("ranks above %d: %w", MaxMembers, ErrLimit))
			return nil
		}
		if n == 0 || i > 0 && skip == 0 {
			d.fail(fmt.Errorf("a run of ranks is empty, or continues the run before it: %w", ErrFormat))
			return nil
		}
		for rank := next + skip; rank < next+skip+n; rank++ {
			ranks = append(ranks, uint32(rank))
		}
		next += skip + n
	}
	return ranks
}

// inner decodes a message within outer. A Branch or Gather within another one is refused, which
// bounds the depth of the recursion and the work that one message can cause.
func (d *decoder) inner(outer *Message) *Message {
	m := &Message{Kind: Kind(d.byte()), Epoch: outer.Epoch, View: outer.View}
	if d.bool() {
		m.Epoch, m.View = d.uint(), d.hash()
		// The short form exists for this case, and each message has one encoding.
		if d.err == nil && m.Epoch == outer.Epoch && m.View == outer.View {
			d.fail(fmt.Errorf("the view of the message is given twice: %w", ErrFormat))
		}
	}
	parts, known := layout(m.Kind)
	if d.err == nil && (!known || parts&(partBranch|partGather) != 0) {
		d.fail(fmt.Errorf("message %v cannot be within message %v: %w", m.Kind, outer.Kind, ErrFormat))
		return m
	}
	d.parts(m, parts)
	return m
}

// spread decodes the fields of a Branch or a Gather.
func (d *decoder) spread(m *Message, parts part) {
	s := &Spread{Author: d.id(), Seq: d.uint(), In: d.hash()}
	m.Spread = s
	if parts&partBranch != 0 {
		s.Inner, s.Ranks = d.inner(m), d.ranks()
		return
	}
	s.Answers = list(d, MaxMembers, func() Answer {
		ranks := d.ranks()
		return Answer{ranks, d.inner(m)}
	})
}
