package elastic

import "github.com/elrun/elrun/elastic/member"

// Keys signs with the key of one identity and verifies the signatures of all identities. The
// network implements Keys, because an ID contains the public key or the hash of it.
type Keys interface {
	// Sign returns the signature of text by this identity, at most 128 bytes.
	Sign(text []byte) []byte
	// Verify reports whether signature is the signature of text by the identity id.
	Verify(id ID, text, signature []byte) bool
}

// memberKeys adapts Keys to elastic/member.
type memberKeys struct{ Keys }

// Verify implements member.Keys.
func (m memberKeys) Verify(id member.ID, text, signature []byte) bool {
	return m.Keys.Verify(ID(id), text, signature)
}

// keys returns the keys of an endpoint for elastic/member, or nil.
func (ep Endpoint) keys() member.Keys {
	if ep.Keys == nil {
		return nil
	}
	return memberKeys{ep.Keys}
}
