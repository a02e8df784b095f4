package elastic_test

import (
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

// membersOf returns members of these IDs.
func membersOf(ids ...elastic.ID) []elastic.Member {
	var all []elastic.Member
	for i, id := range ids {
		all = append(all, elastic.Member{ID: id, Index: i})
	}
	return all
}

func drawView(t *rapid.T, label string) elastic.View {
	id := rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 3, -1), func(s string) elastic.ID { return elastic.ID(s) })
	return elastic.View{
		Epoch:   rapid.Uint64Range(1, 3).Draw(t, label+" epoch"),
		Parent:  [32]byte{rapid.Byte().Draw(t, label+" parent") & 1},
		Members: membersOf(rapid.SliceOfN(id, 1, 3).Draw(t, label+" members")...),
		Voters:  rapid.SliceOfN(id, 0, 3).Draw(t, label+" voters"),
	}
}

// Two views have one hash if they agree in epoch, parent, members and voters; what
// else is known of the members does not matter.
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
