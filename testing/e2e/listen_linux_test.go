package e2e

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// TestListening runs in a network namespace of its own. The peers of a local job listen only on loopback. When a ticket opens the
// job, all members listen on all interfaces, and later members do so from the start.
func TestListening(t *testing.T) {
	if os.Getenv(listenVariable) != "" {
		openByTicket(t)
		return
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	const setup = "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 192.0.2.1/24 dev v0 && " +
		"ip link set v0 up && ip link set v1 up && "
	if out, err := isolated(t, setup+"true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v: %s", err, out)
	}
	c := isolated(t, setup+`exec "$0" -test.run '^TestListening$' -test.v -test.timeout 5m`, os.Args[0])
	c.Env = append(os.Environ(), listenVariable+"=auto")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func openByTicket(t *testing.T) {
	e := start(t, "train", 3)
	e.expectSize(t, 0, 3)
	for _, pid := range e.peers(t) {
		got := sockets(t, pid)
		for _, s := range got {
			if !s.addr.IsLoopback() {
				t.Errorf("closed job: process %d has %v", pid, got)
			}
		}
		for _, ip := range []string{"127.0.0.1", "::1"} {
			if !slices.Contains(got, socket{"tcp", netip.MustParseAddr(ip)}) && hasIPv6() {
				t.Errorf("closed job: process %d does not listen at %s: %v", pid, ip, got)
			}
		}
	}
	line := e.issue(t)
	e.expectWide(t, 3)
	if out, stderr, status := process.Command(t, "scale", e.job.Name, "4"); status != 0 {
		t.Fatalf("scale: %s %s", out, stderr)
	}
	e.expectSize(t, 0, 4)
	second := e.join(t, "train", 1, line)
	second.expectSize(t, 0, 5)
	e.expectWide(t, 5)
	e.expectDone(t)
	second.expectDone(t)
}

// expectWide checks that n processes listen on all interfaces, and have no UDP sockets.
func (e *elrun) expectWide(t *testing.T, n int) {
	t.Helper()
	all := e.peers(t)
	if len(all) != n {
		t.Errorf("%d processes, want %d", len(all), n)
	}
	for _, pid := range all {
		got := sockets(t, pid)
		for _, ip := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if !slices.Contains(got, socket{"tcp", ip}) && (ip.Is4() || hasIPv6()) {
				t.Errorf("open job: process %d does not listen at %v: %v", pid, ip, got)
			}
		}
		if slices.ContainsFunc(got, func(s socket) bool { return s.protocol == "udp" }) {
			t.Errorf("open job: process %d has %v", pid, got)
		}
	}
}

// hasIPv6 reports whether loopback has an IPv6 address.
func hasIPv6() bool {
	b, _ := os.ReadFile("/proc/self/net/if_inet6")
	return strings.Contains(string(b), " lo\n")
}

// socket is a socket on which a process listens or receives.
type socket struct {
	protocol string // tcp or udp
	addr     netip.Addr
}

// sockets returns the sockets on which other processes can reach a process, as ss -ltnup lists them.
func sockets(t *testing.T, pid int) []socket {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, f := range files {
		if link, err := os.Readlink(f); err == nil {
			own[link] = true
		}
	}
	const listens, unconnected = "0A", "07"
	var out []socket
	for table, state := range map[string]string{"tcp": listens, "tcp6": listens, "udp": unconnected, "udp6": unconnected} {
		b, err := os.ReadFile("/proc/self/net/" + table)
		if err != nil {
			continue // the host has no IPv6
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != state || !own["socket:["+f[9]+"]"] {
				continue
			}
			text, _, _ := strings.Cut(f[1], ":")
			out = append(out, socket{table[:3], kernelAddr(t, text)})
		}
	}
	return out
}

// kernelAddr parses an address in /proc/net, which consists of words in the host's byte order, here little-endian.
func kernelAddr(t *testing.T, text string) netip.Addr {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	ip, ok := netip.AddrFromSlice(b)
	if !ok {
		t.Fatalf("address %q", text)
	}
	return ip
}
