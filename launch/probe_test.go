package launch

import (
	"net"
	"strings"
	"testing"
)

// A host is reached if one of its addresses leads to it, and not to whatever else listens
// there.
func TestProbe(t *testing.T) {
	p, err := listenProbe()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := other.Addr().String()
	_ = other.Close()
	_, word, _ := strings.Cut(p.addrs[0], "/")
	addr, _, _ := strings.Cut(p.addrs[len(p.addrs)-1], "/")
	failed := p.dial([]hostAddrs{
		{"itself", p.addrs},
		{"one way of two", []string{closed + "/" + word, p.addrs[len(p.addrs)-1]}},
		{"closed", []string{closed + "/" + word}},
		{"another", []string{addr + "/another"}},
		{"nowhere", nil},
	})
	for host, want := range map[string]string{"closed": "refused", "another": "another host answers", "nowhere": "no address"} {
		if !strings.Contains(failed[host], want) {
			t.Errorf("%s: %q, want %q", host, failed[host], want)
		}
	}
	if len(failed) != 3 {
		t.Errorf("failed: %v", failed)
	}
	p.close()
	if failed := p.dial([]hostAddrs{{"ended", p.addrs}}); len(failed) != 1 {
		t.Error("a probe that was closed answers")
	}
}
