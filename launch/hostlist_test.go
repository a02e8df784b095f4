package launch

import (
	"slices"
	"testing"
)

// hostsNamed returns hosts without a connection.
func hostsNamed(slots int, names ...string) *hostList {
	l := &hostList{}
	for _, n := range names {
		l.hosts = append(l.hosts, &remoteHost{Host: Host{Name: n, Slots: slots}, info: hostInfo{Cores: 3}})
	}
	return l
}

// names returns the names of hosts.
func names(hosts []*remoteHost) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}

func TestSeats(t *testing.T) {
	l := hostsNamed(2, "a", "b")
	l.hosts[1].Slots = 0 // one for each core
	l.assign(0)
	if got := names(l.assignments); !slices.Equal(got, []string{"a", "a", "b", "b", "b"}) {
		t.Errorf("seats %v", got)
	}
	if l.share(l.hosts[0], 5) != 2 || l.share(l.hosts[1], 5) != 3 || l.share(l.hosts[1], 3) != 1 {
		t.Error("shares")
	}
	few := hostsNamed(2, "a", "b")
	few.assign(3)
	if got := names(few.assignments); !slices.Equal(got, []string{"a", "a", "b"}) {
		t.Errorf("seats %v", got)
	}
}

// A peer keeps its assigned host. A peer without an assigned host, or whose host was lost, gets the
// host with the fewest peers per slot.
func TestPlace(t *testing.T) {
	l := hostsNamed(2, "a", "b")
	l.hosts[1].Slots = 4
	l.assign(0)
	running := map[int]*child{0: {host: "a"}, 1: {host: "a"}, 2: {host: "b"}}
	if got := l.hostFor(1, running).Name; got != "a" {
		t.Errorf("peer 1 comes to %s", got)
	}
	if got := l.hostFor(9, running).Name; got != "b" {
		t.Errorf("peer 9 comes to %s", got)
	}
	l.hosts[1].gone = true
	if got := l.hostFor(9, running).Name; got != "a" {
		t.Errorf("with host b lost peer 9 comes to %s", got)
	}
	if (*hostList)(nil).hostFor(0, nil) != nil {
		t.Error("a host where there is none")
	}
}

// A host is left out only if it belongs to a pair in which neither host can connect to the other.
// As few hosts as possible are left out.
func TestWorst(t *testing.T) {
	l := hostsNamed(1, "a", "b", "c", "d")
	failed := func(all ...map[string]string) (out []probeResult) {
		for _, f := range all {
			out = append(out, probeResult{Failed: f})
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
