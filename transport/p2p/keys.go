package p2p

import (
	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/elrun/elrun/elastic"
)

// keys are those of a host: its ID is its public key, so that of everybody is known.
type keys struct{ private crypto.PrivKey }

// Sign implements elastic.Keys. libp2p puts prefixes of its own before what it signs in
// handshakes and records, so a text that begins otherwise is never taken for these.
func (k keys) Sign(text []byte) []byte {
	signature, err := k.private.Sign(text)
	if err != nil {
		return nil // ed25519 does not fail; nil verifies nowhere
	}
	return signature
}

// Verify implements elastic.Keys.
func (k keys) Verify(id elastic.ID, text, signature []byte) bool {
	peerID, err := idOf(string(id))
	if err != nil {
		return false
	}
	public, err := peerID.ExtractPublicKey()
	if err != nil {
		return false
	}
	ok, err := public.Verify(text, signature)
	return ok && err == nil
}
