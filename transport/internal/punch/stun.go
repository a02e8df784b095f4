package punch

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Credential is a secret that the two sides of a check share: the short-term credential of STUN.
// Each is for one purpose only.
type Credential struct {
	User   [userSize]byte `json:"user"`
	Secret [32]byte       `json:"secret"`
}

// userSize is the length of Credential.User in bytes. With the role it fills three words of 4
// bytes, so that USERNAME needs no padding.
const userSize = 11

// NewCredential returns a fresh random credential.
func NewCredential() Credential {
	var c Credential
	_, _ = rand.Read(c.User[:]) // never fails
	_, _ = rand.Read(c.Secret[:])
	return c
}

// Parts of a STUN message (RFC 8489): a header of type, length, cookie and transaction ID, and
// attributes of type, length and value.
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

// Roles. A message has the role of the side that made the request. A host's own address may be
// among the candidates of the other side; by the role it recognises its own requests.
const (
	initiator byte = 'i'
	responder byte = 'r'
)

// message is a Binding request or its answer (RFC 8489, section 14 for the attributes). Both have
// the user of the credential and the role of the requesting side.
type message struct {
	answer bool
	tx     [12]byte
	user   [userSize]byte
	// role is the role of the side that sends the request.
	role   byte
	mapped netip.AddrPort // in an answer: the source address of the request
}

// encode returns the encoded message with the HMAC of a credential.
func (m *message) encode(secret *[32]byte) []byte {
	kind := uint16(bindingRequest)
	if m.answer {
		kind = bindingSuccess
	}
	b := binary.BigEndian.AppendUint16(nil, kind)
	// The HMAC covers the length field as if the message already had the attribute of the HMAC
	// (RFC 8489, section 14.6).
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

// appendAttr appends an attribute to b.
func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...) // all lengths are multiples of 4, so there is no padding
}

// sign returns the HMAC of b, the part of a message before the attribute with the HMAC.
func sign(secret *[32]byte, b []byte) []byte {
	h := hmac.New(sha256.New, secret[:])
	_, _ = h.Write(b)
	return h.Sum(nil)
}

// mask returns the bytes with which XOR-MAPPED-ADDRESS hides an address, so that no router rewrites
// it.
func (m *message) mask() []byte {
	return append(binary.BigEndian.AppendUint32(nil, cookie), m.tx[:]...)
}

// xorMapped returns the encoded value of XOR-MAPPED-ADDRESS.
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

// setMapped decodes the value of XOR-MAPPED-ADDRESS; false if it is malformed.
func (m *message) setMapped(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	want := 4
	if b[1] == family6 {
		want = 16
	}
	// Anyone may send such a packet, so each length is checked before it is used.
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

// isMessage reports whether a packet may be a STUN message. A QUIC packet never is: its first bits
// differ.
func isMessage(b []byte) bool {
	return len(b) >= headerSize && b[0]>>6 == 0 && binary.BigEndian.Uint32(b[4:]) == cookie
}

// sealed is a decoded message whose HMAC was not checked. The HMAC covers the message up to the
// attribute that holds it (signed), and mac is the value received. Both share memory with the
// packet.
type sealed struct {
	message
	signed, mac []byte
}

// opens reports whether the HMAC is valid for a credential.
func (s *sealed) opens(secret *[32]byte) bool { return hmac.Equal(s.mac, sign(secret, s.signed)) }

// parse decodes a message without checking its HMAC; false if it is malformed. The user name in the
// message says by which credential to check it. The HMAC must be the last attribute, so nothing
// unsigned is used.
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
		// Attributes are padded to 4 bytes. The padding is not part of the value.
		at = start + (size+3)&^3
		if at > len(b) {
			return s, false
		}
		if kind == attrIntegrity {
			s.signed, s.mac = b[:start-attrSize], b[start:start+size]
			// A role other than zero shows that the message has a username. An answer needs the
			// mapped address, and a request has none.
			return s, size == macSize && at == len(b) && s.role != 0 && s.answer == s.mapped.IsValid()
		}
		if !s.attribute(kind, b[start:start+size]) {
			return s, false
		}
	}
	return s, false
}

// attribute decodes one attribute, and skips an unknown attribute. It returns false if the
// attribute is malformed.
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
