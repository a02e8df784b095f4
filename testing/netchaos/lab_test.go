package netchaos

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// labPrefix begins the names of all namespaces; the ID of the test process follows.
const labPrefix = "netchaos-"

// lab is some hosts on one network: each a namespace with one interface, eth0, and the
// other ends on a bridge in a namespace of its own, or for two of them a cable. Nothing leads
// out of it.
type lab struct {
	prefix  string // begins the names of its namespaces
	hub     string // namespace of the bridge; "" where there is none
	hosts   []*host
	routers []*host // of homes
}

// host is one namespace.
type host struct {
	namespace string
	name      string // of the host, as programs see it
	addr      string
}

// newLab makes a network of n hosts, which ends with the test.
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	l := newHosts(t, n)
	l.hub = l.prefix + "hub"
	command(t, "", "ip", "netns", "add", l.hub)
	command(t, "link add br0 type bridge mcast_snooping 0\nlink set br0 up", "ip", "-n", l.hub, "-batch", "-")
	for i, h := range l.hosts {
		command(t, fmt.Sprintf("link add p%d type veth peer name eth0 netns %s\nlink set p%d master br0 up", i, h.namespace, i),
			"ip", "-n", l.hub, "-batch", "-")
		h.begin(t)
		h.filter(t)
	}
	return l
}

// newCable makes two hosts with nothing but a cable between them, which ends with the test: no
// bridge and no filters, for which the processors of the hosts would pay.
func newCable(t *testing.T) *lab {
	t.Helper()
	l := newHosts(t, 2)
	command(t, "", "ip", "-n", l.hosts[0].namespace, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", l.hosts[1].namespace)
	for _, h := range l.hosts {
		h.begin(t)
	}
	return l
}

// newHosts makes the namespaces of n hosts that have no network yet.
func newHosts(t *testing.T, n int) *lab {
	t.Helper()
	need(t)
	sweep(t)
	l := &lab{prefix: fmt.Sprintf("%s%d-%s-%d-", labPrefix, os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"), n)}
	t.Cleanup(func() { l.remove(t) })
	for i := range n {
		h := &host{namespace: l.prefix + strconv.Itoa(i), name: "host" + strconv.Itoa(i), addr: fmt.Sprintf("10.77.0.%d", i+1)}
		l.hosts = append(l.hosts, h)
		command(t, "", "ip", "netns", "add", h.namespace)
		h.inside(t, "", "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true")
	}
	return l
}

// begin puts eth0, which is connected, to use.
func (h *host) begin(t *testing.T) {
	t.Helper()
	command(t, "link set lo up\naddr add "+h.addr+"/24 dev eth0\nlink set eth0 up\nroute add default dev eth0",
		"ip", "-n", h.namespace, "-batch", "-")
}

// filter lets what the host takes in go through a filter, which at first lets all pass.
func (h *host) filter(t *testing.T) {
	t.Helper()
	h.inside(t, `table ip netchaos {
	set deaf { type ipv4_addr; }
	chain in {
		type filter hook input priority 0; policy accept;
		ip saddr @deaf drop
	}
}
`, "nft", "-f", "-")
}

// inside runs a command in the namespace.
func (h *host) inside(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return command(t, stdin, append([]string{"ip", "netns", "exec", h.namespace}, args...)...)
}

// hole is a direction in which packets vanish: to does not hear from.
type hole struct{ from, to int }

// String shows the direction.
func (h hole) String() string { return fmt.Sprintf("%d->%d", h.from, h.to) }

// cut makes holes, all at about the same time.
func (l *lab) cut(t *testing.T, holes []hole) {
	t.Helper()
	deaf := map[int][]string{}
	for _, h := range holes {
		deaf[h.to] = append(deaf[h.to], l.hosts[h.from].addr)
	}
	for to, from := range deaf {
		l.hosts[to].inside(t, "add element ip netchaos deaf { "+strings.Join(from, ", ")+" }\n", "nft", "-f", "-")
	}
}

// heal closes all holes.
func (l *lab) heal(t *testing.T) {
	t.Helper()
	for _, h := range l.hosts {
		h.inside(t, "flush set ip netchaos deaf\n", "nft", "-f", "-")
	}
}

// remove ends the network, also if it is there in part only.
func (l *lab) remove(t *testing.T) {
	var all []string
	if l.hub != "" {
		all = append(all, l.hub)
	}
	for _, h := range slices.Concat(l.hosts, l.routers) {
		all = append(all, h.namespace)
	}
	for _, n := range all {
		if out, err := exec.Command("ip", "netns", "del", n).CombinedOutput(); err != nil && !t.Failed() {
			t.Errorf("ip netns del %s: %v: %s", n, err, out)
		}
	}
}

// sweep removes the networks of test processes that were killed.
func sweep(t *testing.T) {
	t.Helper()
	for _, n := range namespaces(t) {
		owner, _, _ := strings.Cut(strings.TrimPrefix(n, labPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = exec.Command("ip", "netns", "del", n).Run() // another test may have been quicker
		}
	}
}

// namespaces returns the names of all that tests of this package have made.
func namespaces(t *testing.T) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(command(t, "", "ip", "netns", "list")) {
		if name := strings.Fields(line); len(name) > 0 && strings.HasPrefix(name[0], labPrefix) {
			out = append(out, name[0])
		}
	}
	return out
}

// command runs a command to its end and returns its output; the test fails with it.
func command(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// need skips the test where it cannot have a network of its own. In CI it fails.
func need(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "network namespaces need root")
	}
	for tool, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, fmt.Sprintf("no %s: install it (Debian: apt-get install %s)", tool, pkg))
		}
	}
	probe := fmt.Sprintf("%s%d-%s-probe", labPrefix, os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("no network namespace can be made: %v: %s", err, out))
	}
	out, err := exec.Command("ip", "netns", "exec", probe, "nft", "add", "table", "ip", "probe").CombinedOutput()
	command(t, "", "ip", "netns", "del", probe)
	if err != nil {
		missing(t, fmt.Sprintf("packets cannot be filtered in a network namespace: %v: %s", err, out))
	}
}

func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
