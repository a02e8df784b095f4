package p2p

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/multiformats/go-multiaddr"
)

// One source, which is an address or the IPv6 /64 of a host, gets its share of slots and no more.
// Other sources find theirs free, and a source can use again the slots that it has freed.
func TestHalfOpenPerAddress(t *testing.T) {
	limits, err := resources()
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	h := newHalfOpen(limits)
	open := func(ip string) (network.ConnManagementScope, error) {
		return h.OpenConnection(network.DirInbound, true, multiaddr.StringCast(ip+"/tcp/4001"))
	}
	flood := func(address func(i int) string) (got []network.ConnManagementScope) {
		for i := range 2 * maxHalfOpen {
			if s, err := open(address(i)); err == nil {
				got = append(got, s)
			}
		}
		return got
	}
	one := flood(func(int) string { return "/ip4/192.0.2.1" })
	net := flood(func(i int) string { return fmt.Sprintf("/ip6/2001:db8::%x", i+1) })
	local := flood(func(int) string { return "/ip4/127.0.0.1" })
	if len(one) != maxHalfOpenPerAddr || len(net) != maxHalfOpenPerAddr || len(local) != maxHalfOpenLocal {
		t.Errorf("places of an IPv4 address %d, of an IPv6 network %d, of loopback %d", len(one), len(net), len(local))
	}
	if s, err := open("/ip4/192.0.2.2"); err != nil {
		t.Errorf("another address: %v", err)
	} else {
		s.Done()
	}
	one[0].Done()
	one[0].Done() // counts once
	if err := one[1].SetPeer("somebody"); err != nil {
		t.Error(err)
	}
	if again := flood(func(int) string { return "/ip4/192.0.2.1" }); len(again) != 2 {
		t.Errorf("%d places after two were left", len(again))
	}
}
