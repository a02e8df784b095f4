package p2p

import (
	"context"
	"net"
	"strings"
	"testing"
)

// greeted listens as a member with or without an admission policy, and returns the address.
func greeted(t *testing.T, policy AdmissionPolicy) (h *Host, addr string) {
	t.Helper()
	h, err := Listen(t.Context(), Config{Job: "greeted", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if policy != nil {
		h.SetAdmission(policy)
	}
	return h, h.Addrs()[0]
}

// Greet reports the ID of a member, and that it admits newcomers, for a multiaddr and for
// HOST:PORT.
func TestGreet(t *testing.T) {
	h, addr := greeted(t, policyOf(signer(1)))
	_, address, err := dialArgs(addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{addr, address} {
		g, err := Greet(t.Context(), a)
		if err != nil || g.ID != h.ID() || !g.Open || g.Addr != address || g.Connect <= 0 || g.Handshake <= 0 {
			t.Errorf("%s: %+v, %v", a, g, err)
		}
	}
}

// The fields of a Greeting show which step has failed.
func TestGreetFails(t *testing.T) {
	_, closed := greeted(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_ = conn.Close()
	}()
	defer func() {
		_ = l.Close()
		<-done
	}()
	for name, c := range map[string]struct {
		addr      string
		connected bool
		want      string
	}{
		"closed to strangers": {closed, true, ""},
		"no libp2p":           {other, true, "does not speak libp2p"},
		"no address":          {"/ip4/127.0.0.1", false, ""},
		"no multiaddr":        {"/nonsense/x", false, "address"},
		"over QUIC":           {"/ip4/127.0.0.1/udp/1/quic-v1", false, "not over TCP"},
		"no port":             {"127.0.0.1", false, "missing port"},
	} {
		g, err := Greet(t.Context(), c.addr)
		if err == nil || !strings.Contains(err.Error(), c.want) || g.Open || g.Connect > 0 != c.connected {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Greet(ctx, other); err == nil {
		t.Error("no error after the end of the context")
	}
}
