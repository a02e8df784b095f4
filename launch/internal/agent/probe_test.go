package agent

import (
	"net"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/wire"
)

// A host counts as reached if its probe, and not another server, answers at one of its addresses.
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
	r := p.dial([]wire.HostAddrs{
		{Host: "itself", Addrs: p.addrs},
		{Host: "one way of two", Addrs: []string{closed + "/" + word, p.addrs[len(p.addrs)-1]}},
		{Host: "closed", Addrs: []string{closed + "/" + word}},
		{Host: "another", Addrs: []string{addr + "/another"}},
		{Host: "nowhere", Addrs: nil},
	})
	failed := r.Failed
	for _, host := range []string{"itself", "one way of two"} {
		if w, ok := r.Links[host]; !ok || w.RTT <= 0 || w.MTU < 0 {
			t.Errorf("%s: %+v", host, w)
		}
	}
	for host, want := range map[string]string{"closed": "refused", "another": "another host answers", "nowhere": "no address"} {
		if !strings.Contains(failed[host], want) {
			t.Errorf("%s: %q, want %q", host, failed[host], want)
		}
	}
	if len(failed) != 3 {
		t.Errorf("failed: %v", failed)
	}
	p.close()
	if r := p.dial([]wire.HostAddrs{{Host: "ended", Addrs: p.addrs}}); len(r.Failed) != 1 || len(r.Links) != 0 {
		t.Error("a probe that was closed answers")
	}
}

// A host does not count as reached if its word arrives, but large packets are lost or the data is
// changed.
func TestProbeChecksData(t *testing.T) {
	for name, c := range map[string]struct {
		follows []byte
		want    string
	}{
		"large packets are lost": {probeData()[:100], "small packets get through"},
		"data changes":           {append(probeData()[1:], 0), "arrives with other values"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write(append([]byte("word\n"), c.follows...))
				_ = conn.Close()
			}()
			if _, err := reach([]string{l.Addr().String() + "/word"}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			<-done
		})
	}
}
