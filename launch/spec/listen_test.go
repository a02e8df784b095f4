package spec

import (
	"strings"
	"testing"
)

func TestParseListen(t *testing.T) {
	for list, want := range map[string]string{
		"auto": "", "local": "", "all": "", "192.0.2.1": "/ip4/192.0.2.1/tcp/0",
		"::1,/ip4/192.0.2.1/tcp/9": "/ip6/::1/tcp/0 /ip4/192.0.2.1/tcp/9",
		"192.0.2.1:80":             "/ip4/192.0.2.1/tcp/80",
		"192.0.2.1:7000-7019":      "/ip4/192.0.2.1/tcp/7000-7019",
		"[2001:db8::1]:7000-7019":  "/ip6/2001:db8::1/tcp/7000-7019",
		"[::]:7000,0.0.0.0:7000":   "/ip6/::/tcp/7000 /ip4/0.0.0.0/tcp/7000",
		"fe80::1%eth0":             "/ip6zone/eth0/ip6/fe80::1/tcp/0",
		"[fe80::1%eth0]:7000-7019": "/ip6zone/eth0/ip6/fe80::1/tcp/7000-7019",
	} {
		if got, err := ParseListen(list); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, %v, want %s", list, got, err, want)
		}
	}
	for _, bad := range []string{"", "eth0", "192.0.2.1,", "192.0.2.1:", "192.0.2.1:x", "192.0.2.1:0-9", "192.0.2.1:9-8",
		"192.0.2.1:7-", "192.0.2.1:70000", "[192.0.2.1", "::1]:80", "a:80", "fe80::1", "[fe80::1]:7000", "/ip4/192.0.2.1/tcp/5-4"} {
		if got, err := ParseListen(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func FuzzParseListen(f *testing.F) {
	f.Add("192.0.2.1:7000-7019,[::1]:5")
	f.Fuzz(func(t *testing.T, list string) {
		got, err := ParseListen(list)
		if err == nil && len(got) > 0 && len(got) != strings.Count(list, ",")+1 {
			t.Errorf("%q: %v", list, got)
		}
	})
}
