package p2p

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
)

// QUIC packets of an outsider are read while the outsider has tokens. Sending the state to an
// outsider earns more tokens than its acknowledgements cost. Members pay nothing.
func TestPunchedOutsiderPays(t *testing.T) {
	limit := newThrottle(make(chan struct{}))
	limit.setInsiders([]peer.ID{"member"})
	limit.rate = 1
	p := newPuncher(new(relays), limit, nil, false)
	const packet, acknowledgement = 1200, 40
	for range 100 * outsiderTokens / packet {
		if !p.account("member")(packet, 0) {
			t.Fatal("a member is not read")
		}
	}
	copying := p.account("copying")
	for range 100 * outsiderTokens / packet {
		copying(0, packet)
		copying(0, packet)
		if !copying(acknowledgement, 0) {
			t.Fatal("who copies the state is not read any more")
		}
	}
	account, n := p.account("outsider"), 0
	for account(packet, 0) {
		if n += packet; n > outsiderTokens {
			t.Fatalf("an outsider was read %d bytes", n)
		}
	}
	if n < outsiderTokens/2 {
		t.Errorf("an outsider was read %d bytes only", n)
	}
}
