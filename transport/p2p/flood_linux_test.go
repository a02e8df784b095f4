package p2p_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/transport/p2p"
)

// TestFloodOfOneAddress runs in a network namespace of its own: while one address opens as many
// silent connections as it can, a newcomer from another address is admitted.
func TestFloodOfOneAddress(t *testing.T) {
	if os.Getenv(inside) != "" {
		floodInside(t)
		return
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	const setup = "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 192.0.2.1/24 dev v0 && " +
		"ip addr add 192.0.2.2/24 dev v0 && ip link set v0 up && ip link set v1 up && "
	if out, err := isolated(t, setup+"true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v: %s", err, out)
	}
	c := isolated(t, setup+`exec "$0" -test.run '^TestFloodOfOneAddress$' -test.v -test.timeout 10m`, os.Args[0])
	c.Env = append(os.Environ(), inside+"=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// floodInside floods from 192.0.2.2 and proves from 192.0.2.1. The handshake timeout is so long
// that it frees no slot.
func floodInside(t *testing.T) {
	cfg := p2p.Config{Job: "test", ListenAddrs: []string{"/ip4/192.0.2.1/tcp/0"}}
	p2p.SetHandshakeTime(&cfg, time.Hour)
	_, m := host(t, cfg, policyOf(key(1)))
	newcomer, _ := host(t, cfg, nil)
	a, err := multiaddr.NewMultiaddr(m.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	network, addr, err := manet.DialArgs(a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	var first sync.WaitGroup
	const many = 700
	first.Add(many)
	for range many {
		attackers.Go(func() {
			tell := sync.OnceFunc(first.Done)
			defer tell()
			for ctx.Err() == nil {
				hold(ctx, network, addr, tell)
			}
		})
	}
	first.Wait()
	begun := time.Now()
	if err := newcomer.Prove(within(t, long), m, by(newcomer, key(1))); err != nil {
		t.Errorf("during the flood: %v", err)
	}
	t.Logf("let in after %v", time.Since(begun))
	cancel()
	attackers.Wait()
}

// hold connects and waits until the other side closes the connection.
func hold(ctx context.Context, network, addr string, connected func()) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return
	}
	connected()
	end := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer end()
	_, _ = c.Read(make([]byte, 1<<10)) // the other side may say something first
	_, _ = c.Read(make([]byte, 1<<10))
	_ = c.Close()
}
