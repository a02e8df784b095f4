package discovery

import (
	"slices"
	"strings"
	"testing"
)

const someID = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

func TestParseBootstrap(t *testing.T) {
	for _, good := range []string{"/ip4/192.0.2.1/tcp/7474/p2p/" + someID, "/ip6/2001:db8::1/tcp/1/p2p/" + someID, "/dns4/boot.example/tcp/7474/p2p/" + someID} {
		if infos, err := parseBootstrap([]string{good}); err != nil || len(infos) != 1 || len(infos[0].Addrs) != 1 {
			t.Errorf("%s: %v, %v", good, infos, err)
		}
	}
	for _, bad := range []string{"", "x", "192.0.2.1:7474", "/ip4/192.0.2.1/tcp/7474", "/p2p/" + someID, "/ip4/192.0.2.1/udp/7474/p2p/" + someID,
		"/ip4/192.0.2.1/tcp/0/p2p/" + someID, "/ip4/192.0.2.1/tcp/7474/p2p/x", "/dnsaddr/bootstrap.libp2p.io/p2p/" + someID,
		"/ip4/192.0.2.1/tcp/7474/p2p/" + someID + "/p2p-circuit", "/unix/a/tcp/1/p2p/" + someID, strings.Repeat("/ip4/192.0.2.1", 100)} {
		infos, err := parseBootstrap([]string{bad})
		if err == nil {
			t.Fatalf("%q: %v", bad, infos)
		}
		if text := err.Error(); len(text) > 250 || strings.Contains(text, "\n") || !strings.Contains(text, "want /ip4/") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	two := []string{"/ip4/192.0.2.1/tcp/7474/p2p/" + someID, "/ip6/2001:db8::1/tcp/1/p2p/" + someID}
	if infos, err := parseBootstrap(two); err != nil || len(infos) != 1 || len(infos[0].Addrs) != 2 {
		t.Errorf("two addresses of a node: %v, %v", infos, err)
	}
	if _, err := parseBootstrap(slices.Repeat(two, maxBootstrap)); err == nil {
		t.Error("any number is taken")
	}
	if _, err := New(); err == nil {
		t.Error("a table without a node")
	}
}

func FuzzParseBootstrap(f *testing.F) {
	f.Add("/ip4/192.0.2.1/tcp/7474/p2p/" + someID)
	f.Add("/dns/x/tcp/1/p2p/" + someID)
	f.Fuzz(func(t *testing.T, text string) {
		infos, err := parseBootstrap([]string{text})
		if err == nil && (len(infos) != 1 || infos[0].ID.Validate() != nil || len(infos[0].Addrs) != 1) {
			t.Errorf("%q: %v", text, infos)
		}
	})
}
