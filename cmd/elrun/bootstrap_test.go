package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch"
)

const nodeAddr = "/ip4/192.0.2.1/tcp/7474/p2p/12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

func TestDHTFlags(t *testing.T) {
	for _, c := range []struct {
		flags dhtFlags
		want  string // text of the error; "" for success
	}{
		{dhtFlags{}, ""},
		{dhtFlags{DHT: true, Bootstrap: []string{nodeAddr, nodeAddr}}, ""},
		{dhtFlags{DHT: true}, "--dht needs --bootstrap ADDR: give the address of a node of your own"},
		{dhtFlags{Bootstrap: []string{nodeAddr}}, "--bootstrap needs --dht"},
		{dhtFlags{DHT: true, Bootstrap: []string{"192.0.2.1:7474"}}, "it is not a multiaddr; want /ip4/"},
		{dhtFlags{DHT: true, Bootstrap: []string{nodeAddr, strings.Repeat("x", 1000)}}, "too long; want /ip4/"},
	} {
		err := c.flags.check()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || len(err.Error()) > 250) {
			t.Errorf("%+v: %v", c.flags, err)
		}
		var o launch.Options
		c.flags.add(&o)
		if (o.Network.Discovery != nil) != (c.want == "" && c.flags.DHT) && err == nil {
			t.Errorf("%+v: %v", c.flags, o.Network.Discovery)
		}
	}
}

func TestBootstrapListen(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              {"0.0.0.0:7474", "[::]:7474"},
		"192.0.2.1":                     {"192.0.2.1:7474"},
		"192.0.2.1:1,[2001:db8::1]:2":   {"192.0.2.1:1", "[2001:db8::1]:2"},
		"::ffff:192.0.2.1":              {"192.0.2.1:7474"},
		"x":                             nil,
		"192.0.2.1:":                    nil,
		"192.0.2.1:65536":               nil,
		"192.0.2.1,":                    nil,
		"fe80::1%eth0":                  nil,
		":7474":                         nil,
		strings.Repeat("192.0.2.1", 99): nil,
	} {
		got, err := parseListen(text)
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if !slices.Equal(texts, want) || (err == nil) != (want != nil) {
			t.Errorf("%.40q: %v, %v", text, got, err)
		}
	}
	if addrs, err := parseListen("0.0.0.0"); err != nil || addrs[0] != netip.MustParseAddrPort("0.0.0.0:7474") {
		t.Errorf("%v, %v", addrs, err)
	}
}
