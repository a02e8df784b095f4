package elastic

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawHosts returns the numbers of the hosts of some members, by rank, as View.Hosts numbers them.
func drawHosts(t *rapid.T) []int {
	var all []Member
	for _, host := range rapid.SliceOfN(rapid.IntRange(0, 8), 1, 60).Draw(t, "hosts") {
		all = append(all, Member{Host: fmt.Sprint(host)})
	}
	if rapid.Bool().Draw(t, "in a row") {
		slices.SortFunc(all, func(a, b Member) int { return int(a.Host[0]) - int(b.Host[0]) })
	}
	return View{Members: all}.Hosts()
}

// If a member watches another one, the other one watches it. A member watches all others in a small
// group, and otherwise two to four.
func TestWatchedWatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := drawHosts(t)
		n, r := len(hosts), newWatchRing(hosts)
		for a := range n {
			around := r.around(a)
			if len(around) > 4 || len(around) < min(n-1, 2) || n <= watchedAll && len(around) != n-1 {
				t.Fatalf("rank %d of %v watches %v", a, hosts, around)
			}
			for i, b := range around {
				if a == b || slices.Contains(around[:i], b) || !slices.Contains(r.around(b), a) {
					t.Fatalf("rank %d of %v watches %v, but %d watches %v", a, hosts, around, b, r.around(b))
				}
			}
		}
	})
}

// A member has watchers on two other hosts, or on one other host if that host has most of the
// members or there are few hosts. Members of a host with most of the members may have no watchers
// on other hosts. In the fixed case, a ring in the order of ranks would let the members of host 0
// watch only each other and one more member.
func TestWatchersOnOtherHosts(t *testing.T) {
	checkElsewhere(t, []int{0, 0, 1, 1, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0})
	rapid.Check(t, func(t *rapid.T) { checkElsewhere(t, drawHosts(t)) })
}

// checkElsewhere checks on how many hosts, except its own host, each member has watchers.
func checkElsewhere(t rapid.TB, hosts []int) {
	n, r := len(hosts), newWatchRing(hosts)
	sizes := make(map[int]int)
	for _, h := range hosts {
		sizes[h]++
	}
	for rank, h := range hosts {
		var elsewhere []int
		for _, w := range r.around(rank) {
			if hosts[w] != h && !slices.Contains(elsewhere, hosts[w]) {
				elsewhere = append(elsewhere, hosts[w])
			}
		}
		want := 0
		most := func(host int) bool { return 2*sizes[host] > n } // the other members cannot go on without such a host
		switch {
		case most(h) || slices.ContainsFunc(elsewhere, most):
		case 3*r.far > n:
			want = 1
		default:
			want = 2
		}
		if len(elsewhere) < want {
			t.Fatalf("rank %d of %v is watched by %v, on hosts %v, want %d hosts", rank, hosts, r.around(rank), elsewhere, want)
		}
	}
}
