package punch

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Credential is what the two ends of a check know and nobody else does: STUN's short-term
// credential. It is used for one purpose.
type Credential struct {
	User   [userSize]byte `json:"user"`
	Secret [32]byte       `json:"secret"`
}

const userSize = 11

// NewCredential returns one that is used by nobody.
func NewCredential() Credential {
	var c Credential
	_, _ = rand.Read(c.User[:]) // never fails
	_, _ = rand.Read(c.Secret[:])
	return c
}

// The parts of a STUN message: a header of type, length, cookie and transaction, and attributes of
// type, length and value.
const (
	headerSize = 20
	attrSize   = 4
	cookie     = 0x2112A442
	macSize    = sha256.Size

	bindingRequest = 0x0001
	bindingSuccess = 0x0101

	attrUsername  = 0x0006
	attrIntegrity = 0x001C // MESSAGE-INTEGRITY-SHA256
	attrMapped    = 0x0020 // XOR-MAPPED-ADDRESS

	family4, family6 = 1, 2
)

// Roles, of which each message has that of its sender's side: a host that finds its own address
// among those of the other must not take its own requests for theirs.
const (
	initiator byte = 'i'
	responder byte = 'r'
)

// message is a Binding request, or the answer to one. Both name the credential and the role of
// the side that asks.
type message struct {
	answer bool
	tx     [12]byte
	user   [userSize]byte
	role   byte           // of the asking side
	mapped netip.AddrPort // in an answer: where the request came from
}

// encode returns the message with the HMAC of a credential.
func (m *message) encode(secret *[32]byte) []byte {
	kind := uint16(bindingRequest)
	if m.answer {
		kind = bindingSuccess
	}
	b := binary.BigEndian.AppendUint16(nil, kind)
	b = binary.BigEndian.AppendUint16(b, 0) // the length, set below
	b = binary.BigEndian.AppendUint32(b, cookie)
	b = append(b, m.tx[:]...)
	b = appendAttr(b, attrUsername, append(m.user[:len(m.user):len(m.user)], m.role))
	if m.answer {
		b = appendAttr(b, attrMapped, m.xorMapped())
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-headerSize+attrSize+macSize))
	return appendAttr(b, attrIntegrity, sign(secret, b))
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...) // all have a multiple of 4 bytes: no padding
}

// sign returns the HMAC of the part of a message that comes before it.
func sign(secret *[32]byte, b []byte) []byte {
	h := hmac.New(sha256.New, secret[:])
	_, _ = h.Write(b)
	return h.Sum(nil)
}

// mask is what an address and its port are hidden by, so that no router takes it for its
// business.
func (m *message) mask() []byte {
	return append(binary.BigEndian.AppendUint32(nil, cookie), m.tx[:]...)
}

// xorMapped returns the value of XOR-MAPPED-ADDRESS.
func (m *message) xorMapped() []byte {
	ip := m.mapped.Addr().Unmap()
	b := []byte{0, family4}
	if !ip.Is4() {
		b[1] = family6
	}
	b = binary.BigEndian.AppendUint16(b, m.mapped.Port()^cookie>>16)
	for i, x := range ip.AsSlice() {
		b = append(b, x^m.mask()[i])
	}
	return b
}

// setMapped reads the value of XOR-MAPPED-ADDRESS.
func (m *message) setMapped(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	want := 4
	if b[1] == family6 {
		want = 16
	}
	if b[1] != family4 && b[1] != family6 || len(b) != 4+want {
		return false
	}
	ip := make([]byte, want)
	for i := range ip {
		ip[i] = b[4+i] ^ m.mask()[i]
	}
	addr, ok := netip.AddrFromSlice(ip)
	m.mapped = netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(b[2:])^cookie>>16)
	return ok
}

// isMessage reports whether a packet can be a STUN message. QUIC's packets cannot.
func isMessage(b []byte) bool {
	return len(b) >= headerSize && b[0]>>6 == 0 && binary.BigEndian.Uint32(b[4:]) == cookie
}

// sealed is a message whose HMAC has not been looked at.
type sealed struct {
	message
	signed, mac []byte
}

// opens reports whether the HMAC is that of a credential.
func (s *sealed) opens(secret *[32]byte) bool { return hmac.Equal(s.mac, sign(secret, s.signed)) }

// parse reads a message: the attributes of encode, and others that it leaves out.
func parse(b []byte) (s sealed, ok bool) {
	if !isMessage(b) || int(binary.BigEndian.Uint16(b[2:])) != len(b)-headerSize {
		return s, false
	}
	switch binary.BigEndian.Uint16(b) {
	case bindingRequest:
	case bindingSuccess:
		s.answer = true
	default:
		return s, false
	}
	copy(s.tx[:], b[8:])
	for at := headerSize; at+attrSize <= len(b); {
		kind, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))
		start := at + attrSize
		at = start + (size+3)&^3
		if at > len(b) {
			return s, false
		}
		if kind == attrIntegrity {
			s.signed, s.mac = b[:start-attrSize], b[start:start+size]
			return s, size == macSize && at == len(b) && s.role != 0 && s.answer == s.mapped.IsValid()
		}
		if !s.attribute(kind, b[start:start+size]) {
			return s, false
		}
	}
	return s, false
}

// attribute reads one attribute before the HMAC.
func (m *message) attribute(kind uint16, value []byte) bool {
	switch kind {
	case attrUsername:
		if len(value) != userSize+1 {
			return false
		}
		copy(m.user[:], value)
		m.role = value[userSize]
	case attrMapped:
		return m.setMapped(value)
	}
	return true
}
