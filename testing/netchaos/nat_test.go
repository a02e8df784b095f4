package netchaos

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// natKind is a way to connect a host: behind routers, of which the first is the outermost, or without routers.
type natKind struct {
	name    string
	routers []string
}

// natKinds returns the kinds, which are the rows and columns of the matrix in TestRouters.
func natKinds() []natKind {
	return []natKind{
		{"open", nil},
		{"full", []string{"full"}},
		{"address", []string{"address"}},
		{"port", []string{"port"}},
		{"symmetric", []string{"symmetric"}},
		{"double", []string{"port", "address"}},
	}
}

// direct reports whether two hosts can connect directly. By RFC 4787 they can if both routers use
// one port for all destinations. They also can if only one router does, and this router ignores
// ports when it filters.
func (n natKind) direct(o natKind) bool {
	switch {
	case n.name != "symmetric" && o.name != "symmetric":
		return true
	case n.name == "symmetric" && o.name == "symmetric":
		return false
	}
	lets := map[string]bool{"open": true, "full": true, "address": true}
	return lets[n.name] || lets[o.name]
}

// natJob is the number of steps in a job of TestRouters.
const natJob = 30

// Two hosts behind any two kinds of routers join a job at the same time, and the job trains the
// same parameters as one peer alone. The two hosts connect directly if RFC 4787 allows it.
// Otherwise the member without a router relays between them, and the log has the reason.
func TestRouters(t *testing.T) {
	parallel(t)
	want := natAlone(t)
	possible, reached := 0, 0
	var table strings.Builder
	for i, a := range natKinds() {
		for _, b := range natKinds()[i:] {
			cell := a.name + "-" + b.name
			if short := "port-port full-symmetric port-symmetric address-double"; !flagged[bool]("long") && !strings.Contains(short, cell) {
				continue
			}
			t.Run(cell, func(t *testing.T) {
				begun := time.Now()
				if a.direct(b) {
					possible++
				}
				direct, path := natCell(t, a, b, want)
				if direct && a.direct(b) {
					reached++
				}
				fmt.Fprintf(&table, "%-9s %-9s %-8v %-60s %.1f s\n", a.name, b.name, a.direct(b), path, time.Since(begun).Seconds())
			})
		}
	}
	t.Logf("%d of %d pairs that RFC 4787 lets connect are direct\n%-9s %-9s %-8s path\n%s", reached, possible, "host 1", "host 2", "RFC 4787", table.String())
	if reached*10 < possible*9 {
		t.Errorf("want 90 %%")
	}
}

// natCell trains with a member without a router and two hosts of the given kinds. It returns
// whether these two hosts have direct paths, and the path from the first to the second.
func natCell(t *testing.T, a, b natKind, want string) (direct bool, path string) {
	l := newLab(t, 3)
	for i, k := range []natKind{a, b} {
		if len(k.routers) > 0 {
			l.behind(t, i+1, k.routers...)
		}
	}
	j := newJob(t, l, settings{pace: time.Millisecond, steps: natJob})
	j.elrun(t, 0, "-n", "1", "--name", j.Name, "--min-peers", "3")
	ticket := ""
	process.Until(t, "a ticket", func() bool {
		ticket = j.tryTicket(0)
		return ticket != ""
	})
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	for _, e := range j.elruns {
		e.Wait(t)
		if got := sumOf(e.Out.String()); got != want {
			t.Errorf("host %d: sha256 %q, want %q", e.host, got, want)
		}
	}
	ids := [3]string{}
	for i, e := range j.elruns {
		ids[i] = e.Read(t).ViewEvent.Peer
	}
	direct = true
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		p := j.path(t, pair[0], ids[pair[1]])
		t.Logf("host %d to host %d: %s %s %s", pair[0], pair[1], p.Kind, p.Addr, p.Why)
		direct = direct && p.Kind != "relay" && p.Kind != ""
		path = cmp.Or(path, fmt.Sprintf("%s %s", p.Kind, cmp.Or(p.Why, p.Addr)))
		if p.Kind == "relay" && !strings.Contains(p.Why, "no path through the routers") {
			t.Errorf("host %d: without a reason: %+v", pair[0], p)
		}
	}
	if direct != a.direct(b) {
		t.Errorf("direct: %v, want %v", direct, a.direct(b))
	}
	j.CheckGone(t)
	return direct, path
}

// natAlone returns the SHA-256 of the parameters that one peer trains alone.
func natAlone(t *testing.T) string {
	l := newLab(t, 1)
	j := newJob(t, l, settings{pace: time.Millisecond, steps: natJob})
	j.elrun(t, 0, "-n", "1", "--name", j.Name)
	j.elruns[0].Wait(t)
	sum := sumOf(j.elruns[0].Out.String())
	if sum == "" {
		t.Fatalf("no sha256 in %q", j.elruns[0].Out.String())
	}
	return sum
}

// sumOf returns the SHA-256 in the result line of a job, or "".
func sumOf(out string) string {
	if found := regexp.MustCompile(`(?m)^done steps=.* sha256=([0-9a-f]{64})$`).FindStringSubmatch(out); found != nil {
		return found[1]
	}
	return ""
}

// behind puts a host behind routers, the outermost first. The host gets a private address.
func (l *lab) behind(t *testing.T, i int, kinds ...string) {
	t.Helper()
	h := l.hosts[i]
	h.inside(t, "", "ip", "link", "del", "eth0")
	outer, port := l.hub, fmt.Sprintf("p%d", i)
	for k, kind := range kinds {
		router := &host{namespace: fmt.Sprintf("%s-router%d", h.namespace, k)}
		l.routers = append(l.routers, router)
		command(t, "", "ip", "netns", "add", router.namespace)
		command(t, fmt.Sprintf("link add %s type veth peer name wan netns %s\nlink set %s up", port, router.namespace, port), "ip", "-n", outer, "-batch", "-")
		wan := h.addr
		if k == 0 {
			command(t, "", "ip", "-n", outer, "link", "set", port, "master", "br0")
		} else {
			command(t, "", "ip", "-n", outer, "addr", "add", fmt.Sprintf("100.64.%d.1/24", k), "dev", port)
			wan = fmt.Sprintf("100.64.%d.2", k)
		}
		inside := homeHost
		if k+1 < len(kinds) {
			inside = fmt.Sprintf("100.64.%d.2", k+1)
		}
		command(t, fmt.Sprintf("addr add %s/24 dev wan\nlink set wan up", wan), "ip", "-n", router.namespace, "-batch", "-")
		if k > 0 {
			command(t, "", "ip", "-n", router.namespace, "route", "add", "default", "via", fmt.Sprintf("100.64.%d.1", k))
		}
		router.inside(t, "", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
		router.inside(t, natRules(kind, inside), "nft", "-f", "-")
		outer, port = router.namespace, "lan"
	}
	command(t, fmt.Sprintf("link add lan type veth peer name eth0 netns %s\naddr add %s/24 dev lan\nlink set lan up", h.namespace, homeRouter),
		"ip", "-n", outer, "-batch", "-")
	command(t, fmt.Sprintf("addr add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s", homeHost, homeRouter),
		"ip", "-n", h.namespace, "-batch", "-")
}

// natRules returns the rules of a router that translates addresses. To the outside, the host has
// the address of the router, and its own port if this port is free. Incoming TCP packets pass only
// as answers. Which UDP packets pass depends on the kind:
//
//	full       all
//	address    packets from addresses to which the host has sent something
//	port       packets from addresses and ports to which the host has sent something
//	symmetric  as port, and the router uses a different port for each destination
func natRules(kind, inside string) string {
	translate, let := "masquerade", ""
	switch kind {
	case "full":
		let = `iifname "wan" meta l4proto udp dnat to ` + inside
	case "address":
		let = `iifname "wan" meta l4proto udp ip saddr @talked dnat to ` + inside
	case "symmetric":
		translate = "masquerade random,fully-random"
	}
	return `table ip home {
	set talked { type ipv4_addr; flags dynamic, timeout; timeout 5m; }
	chain let {
		type nat hook prerouting priority -100; policy accept;
		` + let + `
	}
	chain out {
		type nat hook postrouting priority 100; policy accept;
		oifname "wan" ` + translate + `
	}
	chain forward {
		type filter hook forward priority 0; policy accept;
		oifname "wan" update @talked { ip daddr }
		ct status dnat accept
		iifname "wan" ct state new drop
	}
	chain in {
		type filter hook input priority 0; policy accept;
		iifname "wan" ct state new drop
	}
}
`
}
