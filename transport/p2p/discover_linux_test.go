package p2p_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// inside is the environment variable that marks a process in a network namespace of its own.
const inside = "ELRUN_TEST_NETWORK"

// TestDiscover runs in a process of its own, in its own network namespace: it must not advertise on
// the real network.
func TestDiscover(t *testing.T) {
	if os.Getenv(inside) != "" {
		discoverInside(t)
		return
	}
	for _, tool := range []string{"ip", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	setup := "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 192.0.2.1/24 dev v0 && " +
		"ip link set v0 up && ip link set v1 up && "
	if out, err := isolated(t, setup+"true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v: %s", err, out)
	}
	c := isolated(t, setup+`exec "$0" -test.run '^TestDiscover$' -test.v -test.timeout 2m`, os.Args[0])
	c.Env = append(os.Environ(), inside+"=1")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// isolated returns a shell command in a network namespace of its own.
func isolated(t testing.TB, script string, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return c
}

// discoverInside checks which hosts find each other, with hosts of two jobs and one on loopback.
func discoverInside(t *testing.T) {
	all := p2p.Config{Job: "test"}
	member, m := host(t, all, policyOf(key(1)))
	newcomer, n := host(t, all, nil)
	stranger, s := host(t, p2p.Config{Job: "another"}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	found := make(chan elastic.Member, 100)
	ended := make(chan error)
	for _, h := range []*p2p.Host{member, newcomer, stranger} {
		go func() {
			ended <- h.Discover(ctx, func(f elastic.Member) {
				if h == newcomer || f.ID == s.ID || h == stranger {
					found <- f
				}
			})
		}()
	}
	select {
	case f := <-found:
		if f.ID != m.ID || strings.Contains(strings.Join(f.Addrs, " "), "127.0.0.1") || len(f.Addrs) == 0 {
			t.Errorf("found %v", f)
		}
		// A discovered peer is a hint. It becomes a member by Prove.
		if err := newcomer.Send(within(t, short), f.ID, nil); err == nil {
			t.Error("trusted a hint")
		}
		if err := newcomer.Prove(within(t, long), f, by(newcomer, key(1))); err != nil {
			t.Error(err)
		}
	case <-within(t, long).Done():
		t.Error("found nobody")
	}
	enough := errors.New("enough")
	cancel(enough)
	for range 3 {
		if err := <-ended; !errors.Is(err, enough) {
			t.Errorf("ended by %v", err)
		}
	}
	close(found)
	for f := range found {
		if f.ID != m.ID {
			t.Errorf("found %v, want only %v and not %v", f.ID, m.ID, n.ID)
		}
	}
}

// On loopback Discover fails, and nothing is advertised.
func TestDiscoverNowhere(t *testing.T) {
	hs, _ := hosts(t, 1, configs()["tls"])
	err := hs[0].Discover(t.Context(), func(elastic.Member) { t.Error("found somebody") })
	if !errors.Is(err, p2p.ErrNoNetwork) {
		t.Errorf("got %v", err)
	}
}
