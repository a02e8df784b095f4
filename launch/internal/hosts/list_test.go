package hosts

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// hostsNamed returns hosts without a connection.
func hostsNamed(slots int, names ...string) *List {
	l := &List{}
	for _, n := range names {
		l.Hosts = append(l.Hosts, &Host{Host: spec.Host{Name: n, Slots: slots}, Info: wire.HostInfo{Cores: 3}})
	}
	return l
}

// names returns the names of hosts.
func names(hosts []*Host) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}

func TestSeats(t *testing.T) {
	l := hostsNamed(2, "a", "b")
	l.Hosts[1].Slots = 0 // one for each core
	l.Assign(0)
	if got := names(l.Assignments); !slices.Equal(got, []string{"a", "a", "b", "b", "b"}) {
		t.Errorf("seats %v", got)
	}
	if l.Share(l.Hosts[0], 5) != 2 || l.Share(l.Hosts[1], 5) != 3 || l.Share(l.Hosts[1], 3) != 1 {
		t.Error("shares")
	}
	few := hostsNamed(2, "a", "b")
	few.Assign(3)
	if got := names(few.Assignments); !slices.Equal(got, []string{"a", "a", "b"}) {
		t.Errorf("seats %v", got)
	}
}

// A peer keeps its assigned host. A peer without an assigned host, or whose host was lost, gets the
// host with the fewest peers per slot.
func TestPlace(t *testing.T) {
	l := hostsNamed(2, "a", "b")
	l.Hosts[1].Slots = 4
	l.Assign(0)
	running := func(host string) int { return map[string]int{"a": 2, "b": 1}[host] }
	if got := l.HostFor(1, running).Name; got != "a" {
		t.Errorf("peer 1 comes to %s", got)
	}
	if got := l.HostFor(9, running).Name; got != "b" {
		t.Errorf("peer 9 comes to %s", got)
	}
	l.Hosts[1].gone = true
	if got := l.HostFor(9, running).Name; got != "a" {
		t.Errorf("with host b lost peer 9 comes to %s", got)
	}
	if (*List)(nil).HostFor(0, nil) != nil {
		t.Error("a host where there is none")
	}
}

// A host is left out only if it belongs to a pair in which neither host can connect to the other.
// As few hosts as possible are left out.
func TestWorst(t *testing.T) {
	l := hostsNamed(1, "a", "b", "c", "d")
	failed := func(all ...map[string]string) (out []wire.ProbeResult) {
		for _, f := range all {
			out = append(out, wire.ProbeResult{Failed: f})
		}
		return out
	}
	reasons := failed(map[string]string{"c": "refused"}, map[string]string{"c": "refused"}, map[string]string{"a": "refused", "b": "refused"}, map[string]string{"a": "refused"})
	worst, with := l.mostCut(reasons, map[int]bool{}, false)
	if worst != 2 || !slices.Equal(with, []int{0, 1}) {
		t.Errorf("worst %d with %v", worst, with)
	}
	if _, with := l.mostCut(reasons, map[int]bool{2: true}, false); len(with) > 0 {
		t.Errorf("without it still %v", with)
	}
	if _, with := l.mostCut(failed(map[string]string{"b": "refused"}, nil, nil, nil), map[int]bool{}, false); len(with) > 0 {
		t.Errorf("one direction is enough, but %v", with)
	}
	if _, with := l.mostCut(reasons, map[int]bool{}, true); len(with) > 0 {
		t.Errorf("d relays between c and the others, but %v", with)
	}
	if _, with := l.mostCut(reasons, map[int]bool{3: true}, true); !slices.Equal(with, []int{0, 1}) {
		t.Errorf("nobody relays for c, and with %v", with)
	}
}
