package elastic_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
)

func TestShort(t *testing.T) {
	for id, want := range map[elastic.ID]string{"": "", "abc": "abc", "12D3KooWabcdefgh": "abcdefgh"} {
		if got := id.Short(); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func TestViewRankAndString(t *testing.T) {
	v := elastic.View{Epoch: 3, Members: membersOf("x", "y")}
	if v.Rank("y") != 1 || v.Rank("z") != -1 || v.String() != "epoch 3: x y" {
		t.Errorf("got %d, %d, %q", v.Rank("y"), v.Rank("z"), v)
	}
}

// membersOf returns members with these IDs.
func membersOf(ids ...elastic.ID) []elastic.Member {
	var all []elastic.Member
	for i, id := range ids {
		all = append(all, elastic.Member{ID: id, Index: i})
	}
	return all
}

// drawView draws a random view.
func drawView(t *rapid.T, label string) elastic.View {
	id := rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 3, -1), func(s string) elastic.ID { return elastic.ID(s) })
	return elastic.View{
		Epoch:   rapid.Uint64Range(1, 3).Draw(t, label+" epoch"),
		Parent:  [32]byte{rapid.Byte().Draw(t, label+" parent") & 1},
		Members: membersOf(rapid.SliceOfN(id, 1, 3).Draw(t, label+" members")...),
		Voters:  rapid.SliceOfN(id, 0, 3).Draw(t, label+" voters"),
	}
}

// Two views have equal hashes if they have the same epoch, parent, members and voters; other data
// of the members does not count.
func TestViewHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawView(t, "a"), drawView(t, "b")
		equal := a.Epoch == b.Epoch && a.Parent == b.Parent && slices.Equal(ids(a.Members), ids(b.Members)) && slices.Equal(a.Voters, b.Voters)
		if (a.Hash() == b.Hash()) != equal {
			t.Fatalf("%+v and %+v: equal is %v", a, b, equal)
		}
		moved := a
		moved.Members = nil
		for _, m := range a.Members {
			m.Addrs, m.Host, m.Index = []string{"elsewhere"}, "host", 7
			moved.Members = append(moved.Members, m)
		}
		if a.Hash() != moved.Hash() {
			t.Fatal("addresses count")
		}
	})
}

func ids(members []elastic.Member) []elastic.ID {
	var all []elastic.ID
	for _, m := range members {
		all = append(all, m.ID)
	}
	return all
}

// Hosts and Sites agree with a slow twin that compares all pairs of members.
func TestHostsAndSitesTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v elastic.View
		for rank := range rapid.IntRange(0, 6).Draw(t, "n") {
			pick := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, what) }
			v.Members = append(v.Members, elastic.Member{ID: elastic.ID(fmt.Sprint(rank)), Host: pick("host"), Machine: pick("machine"), Site: pick("site")})
		}
		hosts, sites := v.Hosts(), v.Sites()
		one, named := true, true
		for i, m := range v.Members {
			for j, o := range v.Members {
				if together := i == j || m.Beside(o); together != (hosts[i] == hosts[j]) {
					t.Fatalf("%+v: hosts %v", v.Members, hosts)
				}
				same := siteOf(v, m) == siteOf(v, o)
				one = one && same
				if sites != nil && same != (sites[i] == sites[j]) {
					t.Fatalf("%+v: sites %v", v.Members, sites)
				}
			}
			named = named && siteOf(v, m) != ""
		}
		if (sites != nil) != (named && !one) {
			t.Fatalf("%+v: sites %v", v.Members, sites)
		}
	})
}

// siteOf returns the site of the first member on the same host.
func siteOf(v elastic.View, m elastic.Member) string {
	for _, o := range v.Members {
		if o.ID == m.ID || o.Beside(m) {
			return o.Site
		}
	}
	return ""
}

// Machine distinguishes hosts with equal names, and identifies a host that has two names.
func TestBeside(t *testing.T) {
	for _, test := range []struct {
		a, b elastic.Member
		want bool
	}{
		{elastic.Member{Host: "x"}, elastic.Member{Host: "x"}, true},
		{elastic.Member{Host: "x", Machine: "1"}, elastic.Member{Host: "x", Machine: "2"}, false},
		{elastic.Member{Host: "x", Machine: "1"}, elastic.Member{Host: "y", Machine: "1"}, true},
		{elastic.Member{Host: "1"}, elastic.Member{Machine: "1"}, false},
		{elastic.Member{}, elastic.Member{}, false},
	} {
		if got := test.a.Beside(test.b); got != test.want {
			t.Errorf("%+v and %+v: %t", test.a, test.b, got)
		}
	}
}
