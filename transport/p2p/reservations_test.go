package p2p

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
)

// from is a connection with a peer at an address.
type from struct {
	away
	id peer.ID
}

func (f from) RemotePeer() peer.ID { return f.id }

// Members with public addresses are preferred as relays, and among equal members the members with
// the lower IDs. A member is asked once.
func TestReservations(t *testing.T) {
	r := &relays{held: make(map[peer.ID]bool)}
	public := func(id peer.ID) from { return from{away{addr: "/ip4/8.8.8.8/tcp/1"}, id} }
	private := func(id peer.ID) from { return from{away{addr: "/ip4/10.0.0.1/tcp/1"}, id} }
	for i := range maxRelays {
		if c := private(peer.ID(fmt.Sprint(i))); r.enough(c) || !r.take(c) || r.take(c) {
			t.Fatalf("member %d is not asked once", i)
		}
	}
	if !r.enough(private("9")) {
		t.Error("a member beyond the number is asked")
	}
	if r.enough(private("00")) || r.enough(public("9")) {
		t.Error("a member that is preferred is not asked")
	}
	if !r.leave("3") || r.leave("3") || r.enough(private("9")) {
		t.Error("one that has gone leaves no room")
	}
}

// Without relays nothing is reserved, dialled or closed.
func TestNoRelays(t *testing.T) {
	var r *relays
	r.widen()
	r.reserve(nil)
	r.addCircuits("x")
	r.replaceLost("x")
	if r.inUse() || r.close() != nil {
		t.Error("a host without relays uses some")
	}
}
