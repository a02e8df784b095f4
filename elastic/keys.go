package elastic

import "github.com/elrun/elrun/elastic/member"

// Keys signs with the key of one identity and verifies signatures of all. The network has
// them: there an ID is made of a public key, or tells it.
type Keys interface {
	// Sign returns the signature of text by this identity, at most 128 bytes.
	Sign(text []byte) []byte
	// Verify reports whether the identity of an ID has signed text.
	Verify(id ID, text, signature []byte) bool
}

// memberKeys are those of elastic/member.
type memberKeys struct{ Keys }

// Verify implements member.Keys.
func (k memberKeys) Verify(id member.ID, text, signature []byte) bool {
	return k.Keys.Verify(ID(id), text, signature)
}

// keys returns the keys of an endpoint, or nil.
func (ep Endpoint) keys() member.Keys {
	if ep.Keys == nil {
		return nil
	}
	return memberKeys{ep.Keys}
}
