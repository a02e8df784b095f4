package member

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The encoding of a message is one byte of version, one byte of kind, and the fields of Message in
// order. Integers are unsigned varints; strings and lists have a length before their elements; a
// part that may be missing has a byte 0 or 1 before it. A kind has exactly the parts that layout
// names, so every message has one encoding.

// MaxMessage is the longest encoded message, in bytes. It equals elastic.MaxControl, which this
// package must not import.
const MaxMessage = 4 << 20

// codecVersion is the first byte of every message. It changes with the encoding.
const codecVersion = 4

// The errors of Decode, to be tested with errors.Is.
var (
	// ErrFormat means that the bytes are not an encoded message of this version.
	ErrFormat = errors.New("malformed message")
	// ErrLimit means that a length is above its limit.
	ErrLimit = errors.New("length above limit")
)

// part is a set of optional parts of a message. Encode and Decode read the same table (layout), so
// they cannot disagree on the fields of a kind.
type part uint16

// The optional parts, by the field of Message that each encodes. partChain covers the base or its
// hash, the key and the changes of a Chain, and partBranch and partGather the two forms of
// Message.Spread.
const (
	partBallot part = 1 << iota
	partSeen
	partChange
	partReport
	partChain
	partRequest
	partSignature
	partBranch
	partGather
)

// layout returns the parts of a kind; ok is false for an unknown kind.
func layout(k Kind) (p part, ok bool) {
	switch k {
	case Status, Fence:
		return 0, true
	case Ask:
		return partRequest, true
	case Tell:
		return partReport, true
	case Prepare:
		return partBallot, true
	case Accepted:
		return partBallot | partSignature, true
	case Promise:
		return partBallot | partSeen | partChange | partReport, true
	case Reject:
		return partBallot | partSeen, true
	case Accept:
		return partBallot | partChange, true
	case Chain:
		return partChain, true
	case Branch:
		return partBranch, true
	case Gather:
		return partGather, true
	}
	return 0, false
}

// Encode appends m to b and returns the result. From and To are not encoded. An unknown kind is a
// mistake of the caller and gives bytes that Decode refuses.
func Encode(b []byte, m Message) []byte {
	parts, _ := layout(m.Kind)
	b = append(b, codecVersion, byte(m.Kind))
	b = binary.AppendUvarint(b, m.Epoch)
	b = append(b, m.View[:]...)
	b = appendParts(b, m, parts)
	if parts&(partBranch|partGather) != 0 {
		b = appendSpread(b, m, parts)
	}
	return b
}

// appendParts appends the optional parts.
func appendParts(b []byte, m Message, parts part) []byte {
	if parts&partBallot != 0 {
		b = appendBallot(b, m.Ballot)
	}
	if parts&partSeen != 0 {
		b = appendBallot(b, m.Seen)
	}
	if parts&partChange != 0 {
		// A Promise of a voter that has accepted nothing has no change. This differs from a Promise
		// with an empty change.
		b = appendBool(b, m.Change != nil)
		if m.Change != nil {
			b = appendChange(b, *m.Change)
		}
	}
	if parts&partReport != 0 {
		b = appendReport(b, m.Report)
	}
	if parts&partChain != 0 {
		b = appendChain(b, m)
	}
	if parts&partRequest != 0 {
		b = appendBool(b, m.Request != nil)
		if m.Request != nil {
			b = appendRequest(b, *m.Request)
		}
	}
	if parts&partSignature != 0 {
		b = appendString(b, string(m.Signature))
	}
	return b
}

// Decode decodes one message that fills b. The result shares no memory with b, has no list that is
// longer than its limit, and has all fields that its kind requires. The caller sets From and To.
// Errors wrap ErrFormat or ErrLimit.
func Decode(b []byte) (Message, error) {
	if len(b) > MaxMessage {
		return Message{}, fmt.Errorf("member: decode %d bytes: %w", len(b), ErrLimit)
	}
	d := &decoder{rest: b}
	version, kind := d.byte(), Kind(d.byte())
	parts, known := layout(kind)
	// The version is checked first: in another version the format of all other fields is unknown.
	if d.err == nil && (version != codecVersion || !known) {
		d.fail(fmt.Errorf("version %d, message %v, want version %d and a known message: %w", version, kind, codecVersion, ErrFormat))
	}
	m := Message{Kind: kind, Epoch: d.uint(), View: d.hash()}
	d.parts(&m, parts)
	if parts&(partBranch|partGather) != 0 {
		d.spread(&m, parts)
	}
	// Each message has one encoding, so nothing may follow its fields.
	if d.err == nil && len(d.rest) > 0 {
		d.fail(fmt.Errorf("%d bytes left over: %w", len(d.rest), ErrFormat))
	}
	if d.err != nil {
		return Message{}, fmt.Errorf("member: decode %v: %w", kind, d.err)
	}
	return m, nil
}

// parts decodes the optional parts in the order in which appendParts writes them.
func (d *decoder) parts(m *Message, parts part) {
	if parts&partBallot != 0 {
		m.Ballot = d.ballot()
	}
	if parts&partSeen != 0 {
		m.Seen = d.ballot()
	}
	if parts&partChange != 0 && d.bool() {
		c := d.change()
		m.Change = &c
	}
	if parts&partReport != 0 {
		r := d.report()
		m.Report = &r
	}
	if parts&partChain != 0 {
		d.chain(m)
	}
	if parts&partRequest != 0 && d.bool() {
		r := d.request()
		m.Request = &r
	}
	if parts&partSignature != 0 {
		m.Signature = d.signature()
	}
	// Only a Promise may be without a change.
	if m.Kind == Accept && m.Change == nil {
		d.fail(fmt.Errorf("no change: %w", ErrFormat))
	}
}

// The functions append... append fields to b and return the result, like append. The hash of a view
// covers their output, so equal values must have equal bytes at all peers: no function ranges over
// a map, or appends anything that differs between processes. A new field needs a new codecVersion.

// appendBool appends one byte, 0 or 1.
func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendString appends a length and the bytes of s. The length makes the boundary between two
// successive strings unambiguous in the hashed text.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendBallot appends round and rank.
func appendBallot(b []byte, v Ballot) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, v.Round), uint64(v.Rank))
}

// appendIDs appends a list of IDs.
func appendIDs(b []byte, ids []ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendString(b, string(id))
	}
	return b
}

// appendMember appends the fields of a member in order.
func appendMember(b []byte, m Member) []byte {
	b = appendString(appendString(b, string(m.ID)), m.Info)
	return appendString(appendString(b, string(m.By)), string(m.Was))
}

// appendGrants appends a list of grants.
func appendGrants(b []byte, grants []Grant) []byte {
	b = binary.AppendUvarint(b, uint64(len(grants)))
	for _, g := range grants {
		b = appendString(appendString(b, string(g.Key)), string(g.Issuer))
		for _, n := range []uint64{uint64(g.Made), uint64(g.Expiry), g.Uses, g.Used} {
			b = binary.AppendUvarint(b, n)
		}
		b = appendString(appendBool(b, g.Revoked), g.Record)
	}
	return b
}

// appendMembers appends a list of members.
func appendMembers(b []byte, members []Member) []byte {
	b = binary.AppendUvarint(b, uint64(len(members)))
	for _, m := range members {
		b = appendMember(b, m)
	}
	return b
}

// appendChange appends the fields of a change. The order is part of the encoding. Views.make uses a
// hash of the bytes as a key of its cache.
func appendChange(b []byte, c Change) []byte {
	b = appendIDs(appendIDs(b, c.Lost), c.Left)
	b = appendBool(appendBool(appendMembers(b, c.Join), c.Forced), c.Renew)
	return appendIDs(appendGrants(appendIDs(b, c.Kick), c.Grants), c.Revoke)
}

// appendDecision appends a change and its certificate.
func appendDecision(b []byte, d Decision) []byte {
	b = appendBallot(appendChange(b, d.Change), d.Proof.Ballot)
	b = binary.AppendUvarint(b, uint64(len(d.Proof.Votes)))
	for _, v := range d.Proof.Votes {
		b = appendString(binary.AppendUvarint(b, uint64(v.Rank)), string(v.Signature))
	}
	return b
}

// appendDecisions appends a list of decisions.
func appendDecisions(b []byte, all []Decision) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, d := range all {
		b = appendDecision(b, d)
	}
	return b
}

// appendView appends all of v except its hash, which is the hash of these bytes.
func appendView(b []byte, v View) []byte {
	b = binary.AppendUvarint(b, v.Epoch)
	b = append(b, v.Parent[:]...)
	b = appendMembers(b, v.Members)
	b = binary.AppendUvarint(b, uint64(v.Voters))
	b = append(b, byte(v.Reason))
	b = appendString(b, string(v.Founder))
	return appendIDs(appendGrants(b, v.Grants), v.Barred)
}

// appendRequest appends a request.
func appendRequest(b []byte, r Request) []byte {
	return binary.AppendUvarint(appendMember(b, r.Member), r.At)
}

// appendReport appends r; nil has the encoding of an empty report.
func appendReport(b []byte, r *Report) []byte {
	// A message may have no report although its kind has one. The decoder then returns an empty
	// report.
	if r == nil {
		r = &Report{}
	}
	b = binary.AppendUvarint(b, r.Seq)
	b = appendIDs(appendIDs(b, r.Unreachable), r.Dead)
	b = appendBool(appendBool(b, r.Leaving), r.Renew)
	b = binary.AppendUvarint(b, uint64(len(r.Joins)))
	for _, j := range r.Joins {
		b = appendRequest(b, j)
	}
	return appendIDs(appendIDs(appendGrants(b, r.Grants), r.Revoke), r.Kick)
}

// appendChain appends the view that the changes follow, either whole and with the key or as its
// hash, and then the changes.
func appendChain(b []byte, m Message) []byte {
	b = appendBool(b, m.Base != nil)
	if m.Base != nil {
		b = appendKey(appendView(b, *m.Base), m.Key)
	} else {
		b = append(b, m.After[:]...)
	}
	return appendDecisions(b, m.Changes)
}

// appendKey appends a key.
func appendKey(b []byte, k Key) []byte {
	b = appendString(binary.AppendUvarint(b, k.Stable), string(k.Founder))
	return appendString(binary.AppendUvarint(b, k.Epoch), string(k.ID))
}

// decoder consumes fields from the front of rest. After the first error all its methods return zero
// values.
type decoder struct {
	rest []byte // bytes not yet decoded; shared with the input
	err  error  // the first error
}

// fail records the first error and drops the remaining bytes, so that loops end.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

// take returns the next n bytes, which share memory with the input; nil if they are missing.
func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail(fmt.Errorf("%d bytes missing: %w", n-len(d.rest), ErrFormat))
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// byte decodes one byte.
func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// bool decodes a byte that must be 0 or 1.
func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.fail(fmt.Errorf("byte %d in place of a boolean, want 0 or 1: %w", b, ErrFormat))
	}
	return b == 1
}

// uint decodes a varint, which must have its shortest form, so that each message has one encoding.
func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.fail(fmt.Errorf("an integer is cut off, too long or not in its shortest form: %w", ErrFormat))
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// length decodes a length of at most limit. The length must not exceed the number of remaining
// bytes, as every element takes at least one byte. So no memory is allocated for missing elements.
func (d *decoder) length(limit int) int {
	n := d.uint()
	if n > uint64(limit) {
		d.fail(fmt.Errorf("%d elements, at most %d: %w", n, limit, ErrLimit))
		return 0
	}
	if n > uint64(len(d.rest)) {
		d.fail(fmt.Errorf("%d elements do not fit in the %d bytes that are left: %w", n, len(d.rest), ErrFormat))
		return 0
	}
	return int(n)
}

// hash decodes a hash.
func (d *decoder) hash() (h Hash) {
	copy(h[:], d.take(len(h)))
	return h
}

// id decodes an ID.
func (d *decoder) id() ID { return ID(d.take(d.length(MaxID))) }

// rank decodes the rank of a member, below MaxMembers.
func (d *decoder) rank() uint32 {
	rank := d.uint()
	if rank >= MaxMembers {
		d.fail(fmt.Errorf("rank %d, at most %d: %w", rank, MaxMembers-1, ErrLimit))
	}
	return uint32(rank)
}

// ballot decodes a ballot.
func (d *decoder) ballot() Ballot { return Ballot{Round: d.uint(), Rank: d.rank()} }

// signature decodes a signature into memory of its own.
func (d *decoder) signature() []byte { return slices.Clone(d.take(d.length(MaxSignature))) }

// vote decodes a vote.
func (d *decoder) vote() Vote { return Vote{d.rank(), d.signature()} }

// decision decodes a change and its certificate.
func (d *decoder) decision() Decision {
	return Decision{d.change(), Certificate{d.ballot(), list(d, MaxMembers, d.vote)}}
}

// member decodes a member.
func (d *decoder) member() Member {
	return Member{ID: d.id(), Info: string(d.take(d.length(MaxInfo))), By: d.key(), Was: d.key()}
}

// key decodes the key of a grant, or a former ID.
func (d *decoder) key() ID { return ID(d.take(d.length(MaxKey))) }

// grant decodes a grant.
func (d *decoder) grant() Grant {
	return Grant{Key: d.key(), Issuer: d.id(), Made: int64(d.uint()), Expiry: int64(d.uint()), Uses: d.uint(), Used: d.uint(),
		Revoked: d.bool(), Record: string(d.take(d.length(MaxRecord)))}
}

// grants decodes a list of grants.
func (d *decoder) grants() []Grant { return list(d, MaxGrants, d.grant) }

// request decodes a request.
func (d *decoder) request() Request { return Request{Member: d.member(), At: d.uint()} }

// list decodes up to limit elements.
func list[T any](d *decoder, limit int, element func() T) []T {
	n := d.length(limit)
	if n == 0 {
		return nil
	}
	// Small lists need no growth. A longer list grows only as its elements are decoded, so a false
	// length allocates no memory for elements that are missing.
	all := make([]T, 0, min(n, 16))
	for range n {
		if d.err != nil {
			return nil
		}
		all = append(all, element())
	}
	return all
}

// ids decodes a list of member IDs.
func (d *decoder) ids() []ID { return list(d, MaxMembers, d.id) }

// change decodes a change.
func (d *decoder) change() Change {
	return Change{Lost: d.ids(), Left: d.ids(), Join: list(d, MaxMembers, d.member), Forced: d.bool(), Renew: d.bool(),
		Kick: list(d, MaxBarred, d.id), Grants: d.grants(), Revoke: list(d, MaxGrants, d.id)}
}

// report decodes a report.
func (d *decoder) report() Report {
	return Report{Seq: d.uint(), Unreachable: d.ids(), Dead: d.ids(), Leaving: d.bool(), Renew: d.bool(),
		Joins: list(d, MaxMembers, d.request), Grants: d.grants(), Revoke: list(d, MaxGrants, d.id), Kick: list(d, MaxBarred, d.id)}
}

// view decodes a whole view, checks the conditions on which Apply relies, and computes the hash of
// the view. The message does not contain this hash, so a sender cannot give a view the hash of
// another view.
func (d *decoder) view() View {
	v := View{Epoch: d.uint(), Parent: d.hash(), Members: list(d, MaxMembers, d.member)}
	v.Voters = int(min(d.uint(), MaxMembers+1)) // decoded as an integer, not as a length: fewer bytes than voters may follow
	v.Reason = Reason(d.byte())
	v.Founder = d.id()
	v.Grants, v.Barred = d.grants(), list(d, MaxBarred, d.id)
	v.hash, v.size = v.contentHash()
	v.lookup = newLookup(v.Members)
	if d.err == nil && (v.Epoch == 0 || v.Voters < 1 || v.Voters > len(v.Members) || v.Reason > ForGrant) {
		d.fail(fmt.Errorf("a view has epoch %d, %d members, %d voters and %v, one of which is out of range: %w",
			v.Epoch, len(v.Members), v.Voters, v.Reason, ErrFormat))
	}
	seen := make(map[ID]bool, len(v.Members))
	for _, m := range v.Members {
		if m.ID == "" || seen[m.ID] {
			d.fail(fmt.Errorf("ID %q empty or twice in a view: %w", m.ID, ErrFormat))
		}
		seen[m.ID] = true
	}
	return v
}

// chain decodes the parts of a Chain. The log of a sender holds at most logDepth changes, so a
// longer list is refused before any of it is applied.
func (d *decoder) chain(m *Message) {
	if d.bool() {
		v := d.view()
		m.Base = &v
		m.Key = Key{Stable: d.uint(), Founder: d.id(), Epoch: d.uint(), ID: d.id()}
	} else {
		m.After = d.hash()
	}
	m.Changes = list(d, logDepth, d.decision)
}

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
