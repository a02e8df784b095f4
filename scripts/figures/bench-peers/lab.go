package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/elrun/elrun/internal/cores"
)

// lab is a network of hosts. Each host is a network namespace. Its interface eth0 sends at most at
// the given rate, if there is one. The other ends of the interfaces are ports of a bridge in a
// namespace of its own. A lab needs root.
type lab struct {
	hub   string
	hosts []string // namespaces; host i has the address addr(i)
}

func addr(host int) string { return fmt.Sprintf("10.78.0.%d", host+1) }

// newLab creates a network of n hosts. rate is in the format of tc, for example 1gbit. Without a rate, only the cores of this
// machine limit the links.
func newLab(ctx context.Context, n int, rate string) (*lab, error) {
	prefix := fmt.Sprintf("bench-peers-%d-", os.Getpid())
	l := &lab{hub: prefix + "hub"}
	err := command(ctx, "", "ip", "netns", "add", l.hub)
	if err == nil {
		err = command(ctx, "link add br0 type bridge mcast_snooping 0\nlink set br0 up\n", "ip", "-n", l.hub, "-batch", "-")
	}
	for i := 0; err == nil && i < n; i++ {
		l.hosts = append(l.hosts, prefix+strconv.Itoa(i))
		err = l.add(ctx, i, rate)
	}
	if err != nil {
		l.remove()
		return nil, err
	}
	return l, nil
}

// add creates host i.
func (l *lab) add(ctx context.Context, i int, rate string) error {
	host := l.hosts[i]
	if err := command(ctx, "", "ip", "netns", "add", host); err != nil {
		return err
	}
	wire := fmt.Sprintf("link add p%d type veth peer name eth0 netns %s\nlink set p%d master br0 up\n", i, host, i)
	if err := command(ctx, wire, "ip", "-n", l.hub, "-batch", "-"); err != nil {
		return err
	}
	up := "link set lo up\naddr add " + addr(i) + "/24 dev eth0\nlink set eth0 mtu 1500 up\nroute add default dev eth0\n"
	if err := command(ctx, up, "ip", "-n", host, "-batch", "-"); err != nil {
		return err
	}
	if rate == "" {
		return nil
	}
	return command(ctx, "", "tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "20ms")
}

// remove deletes the network, even if only a part of it exists.
func (l *lab) remove() {
	for _, name := range append([]string{l.hub}, l.hosts...) {
		_ = exec.Command("ip", "netns", "del", name).Run() // fails if the namespace does not exist
	}
}

// inside returns a command that runs on a host. All hosts share the cores of this machine. So
// unless the user has set GOMAXPROCS, inside sets it to the host's part of the cores, as elrun does
// for peers of one host. Otherwise each Go program would use all cores.
func (l *lab) inside(ctx context.Context, host int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", l.hosts[host]}, args...)...)
	if os.Getenv("GOMAXPROCS") == "" {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", max(1, cores.Count()/len(l.hosts))))
	}
	return cmd
}

// sent returns the number of bytes that each host has sent.
func (l *lab) sent(ctx context.Context) ([]int64, error) {
	var all []int64
	for host := range l.hosts {
		file := fmt.Sprintf("/sys/class/net/p%d/statistics/rx_bytes", host)
		out, err := exec.CommandContext(ctx, "ip", "netns", "exec", l.hub, "cat", file).Output()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// command runs a command to its end.
func command(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
