package punch

import (
	"crypto/rand"
	"net/netip"
)

// maxCandidates is how many addresses of the other side a check asks at most.
const maxCandidates = 16

// check is one use of a credential: it answers requests, and makes some of its own. It does no
// I/O and has no lock.
type check struct {
	credential Credential
	role       byte
	tx         [12]byte
	learns     bool             // who asks may be asked, and may send more than requests
	ask        []netip.AddrPort // to which requests go
	found      netip.AddrPort   // of the first answer; zero before
	mapped     netip.AddrPort   // where the other side saw this one
}

// newCheck returns a check that asks the candidates, of which it leaves out some if there are
// too many.
func newCheck(c Credential, role byte, learns bool, candidates []netip.AddrPort) *check {
	k := &check{credential: c, role: role, learns: learns}
	_, _ = rand.Read(k.tx[:]) // never fails
	for _, a := range candidates {
		k.add(a)
	}
	return k
}

// add adds an address to ask, and reports whether it is asked.
func (k *check) add(a netip.AddrPort) bool {
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if k.asks(a) {
		return true
	}
	if !a.IsValid() || a.Port() == 0 || a.Addr().IsMulticast() || a.Addr().IsUnspecified() || len(k.ask) >= maxCandidates {
		return false
	}
	k.ask = append(k.ask, a)
	return true
}

// asks reports whether requests go to a.
func (k *check) asks(a netip.AddrPort) bool {
	for _, b := range k.ask {
		if a == b {
			return true
		}
	}
	return false
}

// request returns what is sent to all addresses.
func (k *check) request() []byte {
	m := message{tx: k.tx, user: k.credential.User, role: k.role}
	return m.encode(&k.credential.Secret)
}

// take takes a message that came from an address, and returns the answer, if there is one to
// send, and whether the address is the other side's.
func (k *check) take(m *sealed, from netip.AddrPort) (answer []byte, theirs bool) {
	if m.answer != (m.role == k.role) || !m.opens(&k.credential.Secret) {
		return nil, false
	}
	if m.answer {
		if m.tx != k.tx || !k.asks(from) {
			return nil, false
		}
		if !k.found.IsValid() {
			k.found, k.mapped = from, m.mapped
		}
		return nil, k.learns
	}
	theirs = k.learns && k.add(from)
	a := message{answer: true, tx: m.tx, user: m.user, role: m.role, mapped: from}
	return a.encode(&k.credential.Secret), theirs
}
