package p2p

import (
	"slices"
	"testing"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

func two() []string { return []string{"eth0", "wlan0"} }

// A link-local address is dialled on all links, whatever its zone was on the host that it comes
// from. Other addresses stay as they are.
func TestOnLinks(t *testing.T) {
	for text, want := range map[string][]string{
		"/ip4/192.0.2.1/tcp/7":              {"/ip4/192.0.2.1/tcp/7"},
		"/ip6/2001:db8::1/tcp/7":            {"/ip6/2001:db8::1/tcp/7"},
		"/ip6/::1/tcp/7":                    {"/ip6/::1/tcp/7"},
		"/ip6/fe80::1/tcp/7":                {"/ip6zone/eth0/ip6zone/eth0/ip6/fe80::1/tcp/7", "/ip6zone/wlan0/ip6zone/wlan0/ip6/fe80::1/tcp/7"},
		"/ip6zone/br-lan/ip6/fe80::1/tcp/7": {"/ip6zone/eth0/ip6zone/eth0/ip6/fe80::1/tcp/7", "/ip6zone/wlan0/ip6zone/wlan0/ip6/fe80::1/tcp/7"},
	} {
		a := multiaddr.StringCast(text)
		var got []string
		for _, way := range onLinks(a, two) {
			got = append(got, way.String())
			if manet.IsIP6LinkLocal(way) {
				t.Errorf("%s: libp2p does not dial it", way)
			}
			if one := withOneZone(way).String(); len(want) > 1 && one != way.String()[len("/ip6zone/")+len(way[0].Value()):] {
				t.Errorf("%s is dialled as %s", way, one)
			}
			if ipOf(way) == nil || !ipOf(way).Equal(ipOf(a)) {
				t.Errorf("%s is at %v", way, ipOf(way))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The IP address of a multiaddr has the zone that its socket needs.
func TestHostOf(t *testing.T) {
	for text, want := range map[string]string{
		"/ip6zone/eth0/ip6/fe80::1/tcp/7":              "fe80::1%eth0",
		"/ip6zone/eth0/ip6zone/eth0/ip6/fe80::1/tcp/7": "fe80::1%eth0",
		"/ip6/2001:db8::1/tcp/7":                       "2001:db8::1",
		"/ip4/192.0.2.1/tcp/7":                         "192.0.2.1",
		"/ip6/::ffff:192.0.2.1/tcp/7":                  "192.0.2.1",
		"/ip4/0.0.0.0/udp/7/quic-v1":                   "0.0.0.0",
	} {
		if got, ok := hostOf(multiaddr.StringCast(text)); !ok || got.String() != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
	if got, ok := hostOf(multiaddr.StringCast("/dns4/example.org/tcp/7")); ok {
		t.Errorf("a name is at %v", got)
	}
}

// The transport accepts addresses with any zones.
func TestScopedCanDial(t *testing.T) {
	s := scoped{}
	for text, want := range map[string]bool{
		"/ip6zone/eth0/ip6zone/eth0/ip6/fe80::1/tcp/7": true, "/ip6zone/eth0/ip6/fe80::1/tcp/7": true,
		"/ip4/192.0.2.1/tcp/7": true, "/ip6zone/eth0/ip6/fe80::1/udp/7": false,
	} {
		if got := s.CanDial(multiaddr.StringCast(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
