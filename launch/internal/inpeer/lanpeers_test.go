package inpeer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
)

// foundAt returns a found peer with one address.
func foundAt(id string, host int) elastic.Member {
	return elastic.Member{ID: elastic.ID(id), Addrs: []string{fmt.Sprintf("/ip4/192.0.2.%d/tcp/7", host)}}
}

// Of the false peers with one address only a few are kept, and false peers with different addresses
// evict the oldest peers. A member that is found later is kept, and so is a peer that has proved
// that it belongs to the job.
func TestJunkLANPeers(t *testing.T) {
	var l lanPeers
	l.add(foundAt("proved", 1))
	l.prove("proved")
	for i := range 10 * maxFound {
		l.add(foundAt(fmt.Sprint("one address ", i), 1))
	}
	if n := len(l.members()); n != 1+maxFoundPerAddr {
		t.Errorf("one address takes %d places", n)
	}
	for i := range 10 * maxFound {
		l.add(foundAt(fmt.Sprint("many addresses ", i), 2+i%250))
	}
	l.add(foundAt("member", 1))
	got := l.members()
	kept := slices.ContainsFunc(got, func(m elastic.Member) bool { return m.ID == "proved" })
	if len(got) != maxFound || got[0].ID != "member" || !kept {
		t.Errorf("%d finds, the newest %v, proved kept: %v", len(got), got[0].ID, kept)
	}
}

func TestLANPeersBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l lanPeers
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			m := foundAt(fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "id")), rapid.IntRange(0, 100).Draw(t, "host"))
			l.add(m)
			if rapid.Bool().Draw(t, "prove") {
				l.prove(m.ID)
			}
			all := map[elastic.ID]bool{}
			for _, o := range l.all {
				all[o.ID] = true
			}
			if len(all) != len(l.all) || len(l.all) > maxFound {
				t.Fatalf("%d finds of %d IDs", len(l.all), len(all))
			}
		}
	})
}
