package p2p

import (
	"crypto/rand"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
)

// Verify with an ID accepts only signatures by the key of this ID.
func TestKeys(t *testing.T) {
	var all [2]keys
	var ids [2]elastic.ID
	for i := range all {
		private, _, err := crypto.GenerateEd25519Key(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		id, err := peer.IDFromPrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		all[i], ids[i] = keys{private}, elastic.ID(id.String())
	}
	text := []byte("text")
	signature := all[0].Sign(text)
	bent := append([]byte(nil), signature...)
	bent[7] ^= 1
	for name, c := range map[string]struct {
		id              elastic.ID
		text, signature []byte
		want            bool
	}{
		"right":           {ids[0], text, signature, true},
		"another's":       {ids[1], text, signature, false},
		"another text":    {ids[0], []byte("texts"), signature, false},
		"a bit":           {ids[0], text, bent, false},
		"no signature":    {ids[0], text, nil, false},
		"no ID":           {"", text, signature, false},
		"no ID of a peer": {"peer", text, signature, false},
	} {
		if got := all[1].Verify(c.id, c.text, c.signature); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
