package member

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// decoder takes fields from the front of rest. After the first error all its methods
// return zero values.
type decoder struct {
	rest []byte
	err  error
}

// fail keeps the first error and drops the rest, so that loops end.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

// take returns the next n bytes.
func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail(fmt.Errorf("%d bytes missing: %w", n-len(d.rest), ErrFormat))
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.fail(fmt.Errorf("%d for yes or no: %w", b, ErrFormat))
	}
	return b == 1
}

// uint reads a varint in its shortest form.
func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.fail(fmt.Errorf("integer: %w", ErrFormat))
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// length reads a length of at most limit. Nothing is allocated for what is not
// there: every element takes at least one byte.
func (d *decoder) length(limit int) int {
	n := d.uint()
	if n > uint64(limit) {
		d.fail(fmt.Errorf("%d elements, at most %d: %w", n, limit, ErrLimit))
		return 0
	}
	if n > uint64(len(d.rest)) {
		d.fail(fmt.Errorf("%d elements in %d bytes: %w", n, len(d.rest), ErrFormat))
		return 0
	}
	return int(n)
}

func (d *decoder) hash() (h Hash) {
	copy(h[:], d.take(len(h)))
	return h
}

func (d *decoder) id() ID { return ID(d.take(d.length(MaxID))) }

// rank reads the rank of a member.
func (d *decoder) rank() uint32 {
	rank := d.uint()
	if rank >= MaxMembers {
		d.fail(fmt.Errorf("rank %d, at most %d: %w", rank, MaxMembers-1, ErrLimit))
	}
	return uint32(rank)
}

func (d *decoder) ballot() Ballot { return Ballot{Round: d.uint(), Rank: d.rank()} }

func (d *decoder) signature() []byte { return slices.Clone(d.take(d.length(MaxSignature))) }

func (d *decoder) vote() Vote { return Vote{d.rank(), d.signature()} }

func (d *decoder) decision() Decision {
	return Decision{d.change(), Certificate{d.ballot(), list(d, MaxMembers, d.vote)}}
}

func (d *decoder) member() Member {
	return Member{ID: d.id(), Info: string(d.take(d.length(MaxInfo))), By: d.key(), Was: d.key()}
}

func (d *decoder) key() ID { return ID(d.take(d.length(MaxKey))) }

func (d *decoder) grant() Grant {
	return Grant{Key: d.key(), Issuer: d.id(), Made: int64(d.uint()), Expiry: int64(d.uint()), Uses: d.uint(), Used: d.uint(),
		Revoked: d.bool(), Record: string(d.take(d.length(MaxRecord)))}
}

func (d *decoder) grants() []Grant { return list(d, MaxGrants, d.grant) }

func (d *decoder) request() Request { return Request{Member: d.member(), At: d.uint()} }

// list reads up to limit elements.
func list[T any](d *decoder, limit int, element func() T) []T {
	n := d.length(limit)
	if n == 0 {
		return nil
	}
	// An honest list is not much longer than its bytes; a dishonest one ends at the
	// first missing byte, before it has grown.
	all := make([]T, 0, min(n, 16))
	for range n {
		if d.err != nil {
			return nil
		}
		all = append(all, element())
	}
	return all
}

func (d *decoder) ids() []ID { return list(d, MaxMembers, d.id) }

func (d *decoder) change() Change {
	return Change{Lost: d.ids(), Left: d.ids(), Join: list(d, MaxMembers, d.member), Forced: d.bool(), Renew: d.bool(),
		Kick: list(d, MaxBarred, d.id), Grants: d.grants(), Revoke: list(d, MaxGrants, d.id)}
}

func (d *decoder) report() Report {
	return Report{Seq: d.uint(), Unreachable: d.ids(), Dead: d.ids(), Leaving: d.bool(), Renew: d.bool(),
		Joins: list(d, MaxMembers, d.request), Grants: d.grants(), Revoke: list(d, MaxGrants, d.id), Kick: list(d, MaxBarred, d.id)}
}

// view reads a view whole and checks what Apply relies on.
func (d *decoder) view() View {
	v := View{Epoch: d.uint(), Parent: d.hash(), Members: list(d, MaxMembers, d.member)}
	v.Voters = int(min(d.uint(), MaxMembers+1)) // no length: fewer bytes may follow
	v.Reason = Reason(d.byte())
	v.Founder = d.id()
	v.Grants, v.Barred = d.grants(), list(d, MaxBarred, d.id)
	v.hash, v.size = v.contentHash()
	v.lookup = newLookup(v.Members)
	if d.err == nil && (v.Epoch == 0 || v.Voters < 1 || v.Voters > len(v.Members) || v.Reason > ForGrant) {
		d.fail(fmt.Errorf("view of epoch %d with %d members, %d voters, %v: %w",
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

// chain reads the last part of a Chain.
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
