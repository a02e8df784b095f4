package member

import (
	"encoding/binary"
	"fmt"
	"slices"
)

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
