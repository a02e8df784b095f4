package mem

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/elrun/elrun/elastic"
)

// Keyring makes the signing keys of a network whose members have no key pairs. A Keyring is a secret that only the
// network has. A signature is a MAC with that secret.
type Keyring string

// keys are the keys of one member.
type keys struct {
	ring Keyring
	self elastic.ID
}

// Keys returns the keys of a member.
func (k Keyring) Keys(self elastic.ID) elastic.Keys { return keys{k, self} }

// Sign implements elastic.Keys: it returns an HMAC with the secret and the member's ID as the key.
func (k keys) Sign(text []byte) []byte {
	h := hmac.New(sha256.New, []byte(string(k.ring)+string(k.self)))
	h.Write(text)
	return h.Sum(nil)
}

// Verify implements elastic.Keys.
func (k keys) Verify(id elastic.ID, text, signature []byte) bool {
	return hmac.Equal(keys{k.ring, id}.Sign(text), signature)
}
