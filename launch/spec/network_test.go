package spec

import (
	"strings"
	"testing"
)

func TestNetworkDefaults(t *testing.T) {
	var n Network
	n.defaults()
	if want := (Network{Transport: "auto", Encrypt: "auto", Relay: "members", Listen: "auto"}); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	given := Network{Transport: "direct", Encrypt: "never", Relay: "never", Listen: "local", LAN: true, PortMap: true, Site: "berlin"}
	if n = given; n.check() != nil {
		t.Errorf("%+v: %v", n, n.check())
	}
	if n.defaults(); n != given {
		t.Errorf("%+v, want %+v", n, given)
	}
	if zero := (Network{}); zero.check() != nil {
		t.Errorf("the zero value: %v", zero.check())
	}
}

func TestBadNetwork(t *testing.T) {
	for want, n := range map[string]Network{
		`unknown transport "pigeon"`: {Transport: "pigeon"},
		`unknown encryption "rot13"`: {Encrypt: "rot13"},
		`unknown relay "all"`:        {Relay: "all"},
		`"here"`:                     {Listen: "here"},
		`site "a/b"`:                 {Site: "a/b"},
	} {
		if err := n.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", n, err, want)
		}
	}
}

func TestSendsPlaintext(t *testing.T) {
	for _, c := range []struct {
		n    Network
		want bool
	}{
		{Network{}, false},
		{Network{Encrypt: "never"}, true},
		{Network{Encrypt: "never", Transport: "auto"}, true},
		{Network{Encrypt: "never", Transport: "direct"}, true},
		{Network{Encrypt: "never", Transport: "p2p"}, false},
		{Network{Encrypt: "auto", Transport: "direct"}, false},
	} {
		if got := c.n.SendsPlaintext(); got != c.want {
			t.Errorf("%+v: %v", c.n, got)
		}
	}
}
