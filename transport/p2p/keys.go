package p2p

import (
	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/elrun/elrun/elastic"
)

// keys implements elastic.Keys. The ID of a host is its public key (an Ed25519 key is short enough
// to be part of the ID), so a peer needs only the ID of the signer to verify a signature, and
// members need no directory of keys.
type keys struct{ private crypto.PrivKey }

// Sign implements elastic.Keys. libp2p signs with the same key in handshakes and records, but puts
// prefixes of its own before the signed texts. So a signature by Sign of a text without such a
// prefix is never valid there.
func (k keys) Sign(text []byte) []byte {
	signature, err := k.private.Sign(text)
	if err != nil {
		return nil // ed25519 does not fail; a nil signature is valid nowhere
	}
	return signature
}

// Verify implements elastic.Keys. No signature is valid for an ID without a public key; the IDs of
// hosts have one.
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
