package wire

import (
	"crypto/ed25519"
	"encoding/base32"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// A launcher signs the deaths of its peers, and members of other launchers check the signature:
// Member.Launcher is the public key of the launcher.

// keyText is the encoding of a public key in Member.Launcher.
func keyText() *base32.Encoding { return base32.StdEncoding.WithPadding(base32.NoPadding) }

// LauncherName returns the name of the launcher with a key, which is its public key.
func LauncherName(key ed25519.PrivateKey) string {
	return keyText().EncodeToString(key.Public().(ed25519.PublicKey))
}

// deathOf returns what a launcher signs to say that a peer is dead. An ID never returns, so it is true
// for ever.
func deathOf(id elastic.ID) []byte { return []byte("elrun: dead: " + string(id)) }

// SignDeaths returns the obituaries of peers of the launcher with a key.
func SignDeaths(key ed25519.PrivateKey, dead []elastic.ID) []p2p.Obituary {
	out := make([]p2p.Obituary, len(dead))
	for i, id := range dead {
		out[i] = p2p.Obituary{ID: id, Signature: [ed25519.SignatureSize]byte(ed25519.Sign(key, deathOf(id)))}
	}
	return out
}

// IsDeath reports whether the launcher that started a member has signed its obituary.
func IsDeath(m elastic.Member, o p2p.Obituary) bool {
	key, err := keyText().DecodeString(m.Launcher)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, deathOf(o.ID), o.Signature[:])
}
