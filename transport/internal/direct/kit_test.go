package direct

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is the time after which a test counts as hanging.
const hang = 4 * time.Minute

// within returns a context that ends when the test hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// openFiles returns the number of open file descriptors of this process; 0 where the system does
// not report it.
func openFiles() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}

// keepsFiles checks that the test, including its other cleanups, leaves no descriptor open. It waits, because goroutines that are
// about to end close the descriptors of connections.
func keepsFiles(t testing.TB) {
	t.Helper()
	before := openFiles()
	t.Cleanup(func() {
		eventually(t, fmt.Sprintf("%d descriptors as before", before), func() bool { return openFiles() <= before })
	})
}

// loopback is the address at which the ports of tests listen.
func loopback() netip.Addr { return netip.MustParseAddr("127.0.0.1") }

// opened returns a port on loopback, and at a Unix socket where the system has them.
func opened(t testing.TB) *Port {
	t.Helper()
	p, err := Open(Config{IPs: []netip.Addr{loopback()}, ID: rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// target returns the target of a port for the network "tcp" or "unix".
func target(t testing.TB, p *Port, network string) Target {
	t.Helper()
	to, ok := p.offer.ByTCP(loopback())
	if network == "unix" {
		to, ok = UnixTarget(p.id), p.id != ""
	}
	if !ok {
		t.Skipf("no %s socket on this system", network)
	}
	return to
}

// identity is a certificate. It also verifies another given certificate, by comparing bytes.
type identity struct{ cert tls.Certificate }

func newIdentity(t testing.TB) identity {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}
}

// with returns the TLS configuration for a connection that accepts only the other identity.
func (i identity) with(other identity) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		InsecureSkipVerify:          true,
		ClientAuth:                  tls.RequireAnyClientCert,
		Certificates:                []tls.Certificate{i.cert},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if string(raw[0]) != string(other.cert.Certificate[0]) {
				return errors.New("it is somebody else")
			}
			return nil
		},
	}
}

// way is a kind of connection between two sides.
type way struct {
	network string
	tls     bool
	socks   int // number of connections that form one Conn
}

func ways() map[string]way {
	return map[string]way{
		"unix": {"unix", false, 1}, "plain": {"tcp", false, 1}, "tls": {"tcp", true, 1},
		"plain bundle": {"tcp", false, 3}, "tls bundle": {"tcp", true, maxStripes},
	}
}

// connected returns both ends of a connection, which the test closes.
func connected(t testing.TB, p *Port, w way) (dialled, waited *Conn) {
	t.Helper()
	var ours, theirs *tls.Config
	if w.tls {
		a, b := newIdentity(t), newIdentity(t)
		ours, theirs = a.with(b), b.with(a)
	}
	ticket := NewTicket()
	wait := p.Expect(ticket, theirs)
	defer wait.Cancel()
	socks := sockets(t, target(t, p, w.network), w.socks)
	dialled, err := present(newBundle(socks), socks, ticket, ours)
	if err != nil {
		t.Fatal(err)
	}
	if waited, err = wait.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dialled.Close() // fails if it is closed already
		_ = waited.Close()
	})
	return dialled, waited
}

// sockets returns n connections to a port, in the order of their creation.
func sockets(t testing.TB, to Target, n int) []net.Conn {
	t.Helper()
	var socks []net.Conn
	for range n {
		s, err := net.Dial(to.Network, to.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		socks = append(socks, s)
	}
	return socks
}

// ended waits until the other side has closed a connection on which it sends nothing.
func ended(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	switch n, err := c.Read(make([]byte, 1)); {
	case n > 0:
		t.Error("it is answered")
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Error("it goes on")
	}
}

// exchange sends a text in each direction.
func exchange(a, b *Conn) error {
	for _, c := range [][2]*Conn{{a, b}, {b, a}} {
		if err := c[0].WriteTwo([]byte("hel"), []byte("lo")); err != nil {
			return err
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(c[1], got); err != nil || string(got) != "hello" {
			return fmt.Errorf("received %q: %w", got, err)
		}
	}
	return nil
}

// until waits until a condition is true. It evaluates the condition with the port's mutex held.
func (p *Port) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return is()
	})
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !is(); <-tick.C {
		if time.Since(begun) > hang {
			t.Errorf("not %s in time", what)
			return
		}
	}
}
