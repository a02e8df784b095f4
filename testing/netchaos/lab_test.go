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

// labPrefix begins the names of all namespaces. The ID of the test process follows it.
const labPrefix = "netchaos-"

// lab is a network of hosts. Each host is a network namespace with one interface, eth0. The other ends of these interfaces are on
// a bridge in a namespace of its own; two hosts may have a cable instead. The network has no connection to the outside.
type lab struct {
	prefix  string // beginning of the names of the lab's namespaces
	hub     string // namespace of the bridge; "" without a bridge
	hosts   []*host
	routers []*host // routers of home networks
}

// host is the namespace of one host.
type host struct {
	namespace string
	name      string // host name that programs see
	addr      string
}

// newLab creates a network of n hosts, which ends with the test.
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

// newCable creates two hosts that a veth pair connects directly. They end with the test. There is
// no bridge and no packet filter, because these would need processor time.
func newCable(t *testing.T) *lab {
	t.Helper()
	l := newHosts(t, 2)
	command(t, "", "ip", "-n", l.hosts[0].namespace, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", l.hosts[1].namespace)
	for _, h := range l.hosts {
		h.begin(t)
	}
	return l
}

// newHosts creates the namespaces of n hosts, without a network.
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

// begin configures eth0, which must be connected.
func (h *host) begin(t *testing.T) {
	t.Helper()
	command(t, "link set lo up\naddr add "+h.addr+"/24 dev eth0\nlink set eth0 up\nroute add default dev eth0",
		"ip", "-n", h.namespace, "-batch", "-")
}

// filter adds a packet filter for incoming packets to the host. At first it accepts all packets.
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

// inside runs a command in the namespace of the host.
func (h *host) inside(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return command(t, stdin, append([]string{"ip", "netns", "exec", h.namespace}, args...)...)
}

// hole is a direction in which packets are lost: host number to receives no packets of host number
// from.
type hole struct{ from, to int }

// String returns the direction as text.
func (h hole) String() string { return fmt.Sprintf("%d->%d", h.from, h.to) }

// cut makes all the given holes at about the same time.
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

// heal removes all holes.
func (l *lab) heal(t *testing.T) {
	t.Helper()
	for _, h := range l.hosts {
		h.inside(t, "flush set ip netchaos deaf\n", "nft", "-f", "-")
	}
}

// remove deletes the network, even if only a part of it exists.
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

// sweep deletes the networks of test processes that were killed.
func sweep(t *testing.T) {
	t.Helper()
	for _, n := range namespaces(t) {
		owner, _, _ := strings.Cut(strings.TrimPrefix(n, labPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = exec.Command("ip", "netns", "del", n).Run() // another test process may have deleted it first
		}
	}
}

// namespaces returns the names of all namespaces that tests of this package have created.
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

// command runs a command to its end and returns its output. If the command fails, the test fails.
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

// need skips the test where it cannot create a network. In CI it fails the test instead.
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
