package collective

import (
	"fmt"
	"testing"
)

// Ranks are grouped by host and by site, in the order of their first ranks. bySite returns no
// groups if a hierarchy of sites has no advantage.
func TestTopology(t *testing.T) {
	hosts := []int{0, 1, 0, 3, 1} // ranks 0 and 2 share a host, and 1 and 4
	for _, test := range []struct {
		sites, ranks   []int
		byHost, bySite string
	}{
		{nil, []int{0, 1, 2, 3, 4}, "[[0 2] [1 4] [3]]", "[]"},
		{[]int{7, 8, 7, 7, 8}, []int{4, 3, 2, 0}, "[[4] [3] [2 0]]", "[[4] [3 2 0]]"},
		{[]int{7, 8, 9, 7, 7}, []int{0, 1, 2, 4}, "[[0 2] [1 4]]", "[[0 2] [1 4]]"}, // the first rank of a host determines its site
		{[]int{7, 7, 7, 7, 7}, []int{0, 1, 2}, "[[0 2] [1]]", "[]"},
		{[]int{7, 8, 7, 9, 8}, []int{0, 1, 3}, "[[0] [1] [3]]", "[]"},
	} {
		top := topology{leaders: hosts, sites: test.sites}
		if got := fmt.Sprint(top.byHost(test.ranks)); got != test.byHost {
			t.Errorf("ranks %v by host: %s, want %s", test.ranks, got, test.byHost)
		}
		if got := fmt.Sprint(top.bySite(test.ranks)); got != test.bySite {
			t.Errorf("ranks %v of sites %v: %s, want %s", test.ranks, test.sites, got, test.bySite)
		}
	}
}

// A member of a new communicator is chosen by its color and placed by its key; the lane is free at
// all members.
func TestMembersOf(t *testing.T) {
	table := []int64{1, 5, 0, 2, 0, 3, 1, 5, 2, 1, -1, 1} // color, key and free lane of four ranks
	if ranks, lane := membersOf(table, 1); fmt.Sprint(ranks) != "[3 0 2]" || lane != 2 {
		t.Errorf("ranks %v in lane %d, want [3 0 2] in lane 2", ranks, lane)
	}
}
