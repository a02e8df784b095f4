package member

import "encoding/binary"

// The functions of this file append to b and return the result, like append. The hash of a view
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
