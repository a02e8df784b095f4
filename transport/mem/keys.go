package mem

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/elrun/elrun/elastic"
)

// Keyring makes keys for a network without identities: a signature is a MAC with a secret
// that only the network has.
type Keyring string

// keys are those of one member.
type keys struct {
	ring Keyring
	self elastic.ID
}

// Keys returns the keys of a member.
func (r Keyring) Keys(self elastic.ID) elastic.Keys { return keys{r, self} }

// Sign implements elastic.Keys.
func (k keys) Sign(text []byte) []byte {
	h := hmac.New(sha256.New, []byte(string(k.ring)+string(k.self)))
	h.Write(text)
	return h.Sum(nil)
}

// Verify implements elastic.Keys.
func (k keys) Verify(id elastic.ID, text, signature []byte) bool {
	return hmac.Equal(keys{k.ring, id}.Sign(text), signature)
}
