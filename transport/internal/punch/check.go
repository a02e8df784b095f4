package punch

import (
	"crypto/rand"
	"net/netip"
)

// maxCandidates is the number of addresses to which a check sends requests.
const maxCandidates = 16

// check is one use of a credential: it answers requests and makes its own. It does no I/O and is
// not safe for concurrent use; the lock of the Socket guards it.
//
// The first answer that arrives decides, whatever the order of the candidates. ICE goes on to
// compare pairs of candidates and nominates one of them (RFC 8445, section 8); A check does not do
// that, because every path that answers avoids the relay, and the nearest path answers first.
type check struct {
	credential Credential
	role       byte // this side's
	// tx is the transaction ID of the requests of this check.
	tx [12]byte
	// learns is set if the socket accepts QUIC packets from the senders of valid requests and
	// answers. The sender of a valid request also becomes a candidate.
	learns bool
	ask    []netip.AddrPort // candidates
	found  netip.AddrPort   // source of the first answer; zero before
	// mapped is the external address of this side, as the first answer has it.
	mapped netip.AddrPort
}

// newCheck returns a check with the given candidates, at most maxCandidates of them.
func newCheck(c Credential, role byte, learns bool, candidates []netip.AddrPort) *check {
	k := &check{credential: c, role: role, learns: learns}
	_, _ = rand.Read(k.tx[:]) // never fails
	for _, a := range candidates {
		k.add(a)
	}
	return k
}

// add adds a candidate, and reports whether a is one now. Addresses that no host has are refused,
// and so are those beyond maxCandidates: a credential must not make this host send to many others.
func (c *check) add(a netip.AddrPort) bool {
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if c.asks(a) {
		return true
	}
	if !a.IsValid() || a.Port() == 0 || a.Addr().IsMulticast() || a.Addr().IsUnspecified() || len(c.ask) >= maxCandidates {
		return false
	}
	c.ask = append(c.ask, a)
	return true
}

// asks reports whether a is a candidate.
func (c *check) asks(a netip.AddrPort) bool {
	for _, b := range c.ask {
		if a == b {
			return true
		}
	}
	return false
}

// request returns the encoded request, the same for all candidates.
func (c *check) request() []byte {
	m := message{tx: c.tx, user: c.credential.User, role: c.role}
	return m.encode(&c.credential.Secret)
}

// process processes a message from an address. A request from an unknown address makes the address
// a candidate (peer-reflexive): behind a symmetric router a host sends from an address that it
// could not announce. It returns the answer to send, or nil, and whether QUIC packets from the
// address may pass.
func (c *check) process(m *sealed, from netip.AddrPort) (answer []byte, theirs bool) {
	if m.answer != (m.role == c.role) || !m.opens(&c.credential.Secret) {
		return nil, false
	}
	if m.answer {
		if m.tx != c.tx || !c.asks(from) {
			return nil, false
		}
		if !c.found.IsValid() {
			c.found, c.mapped = from, m.mapped
		}
		return nil, c.learns
	}
	theirs = c.learns && c.add(from)
	a := message{answer: true, tx: m.tx, user: m.user, role: m.role, mapped: from}
	return a.encode(&c.credential.Secret), theirs
}
