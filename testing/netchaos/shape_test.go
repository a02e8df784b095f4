package netchaos

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// rates has the rates of all links in a lab in Mbit/s, indexed by the sending and the receiving host.
type rates [][]int

// newRates returns rates in which all links between n hosts are equal.
func newRates(n, mbit int) rates {
	r := make(rates, n)
	for i := range r {
		r[i] = make([]int, n)
		for j := range r[i] {
			r[i][j] = mbit
		}
	}
	return r
}

// costs returns the costs for ring.Order: the times for a fixed amount of data.
func (r rates) costs() [][]int64 {
	cost := make([][]int64, len(r))
	for i, row := range r {
		for _, mbit := range row {
			cost[i] = append(cost[i], int64(1e6/mbit))
		}
	}
	return cost
}

// shape sets the rate of every link. The packets from one host to another pass through their own
// traffic class. Packets leave one by one, as on a wire.
func (l *lab) shape(t *testing.T, r rates) {
	t.Helper()
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	for i, h := range l.hosts {
		var b strings.Builder
		b.WriteString("qdisc add dev eth0 root handle 1: htb default 1\n")
		b.WriteString("class add dev eth0 parent 1: classid 1:1 htb rate 1gbit quantum 60000\n") // the class for packets to no particular host
		for j, to := range l.hosts {
			if i != j {
				fmt.Fprintf(&b, "class add dev eth0 parent 1: %s\n", class(j, r[i][j]))
				fmt.Fprintf(&b, "filter add dev eth0 parent 1: protocol ip u32 match ip dst %s/32 flowid 1:%x\n", to.addr, 10+j)
			}
		}
		h.inside(t, b.String(), "tc", "-batch", "-")
		h.inside(t, "", "ip", "link", "set", "eth0", "gso_max_segs", "1")
	}
}

// reshape changes the rate of one link.
func (l *lab) reshape(t *testing.T, from, to, mbit int) {
	t.Helper()
	l.hosts[from].inside(t, "class change dev eth0 parent 1: "+class(to, mbit)+"\n", "tc", "-batch", "-")
}

// class returns the settings of the traffic class for packets to a host.
func class(to, mbit int) string {
	return fmt.Sprintf("classid 1:%x htb rate %dmbit burst 15k cburst 15k quantum 30000", 10+to, mbit)
}
