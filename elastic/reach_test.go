package elastic

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// spread returns per members on each of the given number of hosts, in the order of the hosts.
func spread(hosts, per int) (all []Member) {
	for h := range hosts {
		for i := range per {
			all = append(all, Member{ID: ID(fmt.Sprintf("%02d-%02d", h, i)), Host: fmt.Sprint("host", h)})
		}
	}
	return all
}

// reachOf returns the reach of a newcomer on a host, in a group.
func reachOf(id ID, host string, relay bool, members []Member) *reach {
	r := newReach(Member{ID: id, Host: host}, relay)
	r.members = members
	return &r
}

// perHost counts members by host.
func perHost(all []Member) map[string]int {
	n := make(map[string]int)
	for _, m := range all {
		n[m.Host]++
	}
	return n
}

// A newcomer of a small group makes its first offers to all members, and later ones to the deciders
// and to the members that it has not reached.
func TestTargetsOfSmallGroup(t *testing.T) {
	r := reachOf("new", "elsewhere", false, spread(4, 2))
	if got := r.targets(); len(got) != 8 {
		t.Fatalf("%d targets of 8 members", len(got))
	}
	for _, m := range r.members {
		r.note(m.ID, m.ID == "03-01" || m.ID == "00-01", false)
	}
	var got []ID
	for _, m := range r.targets() {
		got = append(got, m.ID)
	}
	// Member 00-01 is cut off, so the fifth member is a decider, too.
	if want := []ID{"00-00", "00-01", "01-00", "01-01", "02-00", "03-01"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A newcomer of a large group connects with the deciders and with some members of each other host.
func TestDelegates(t *testing.T) {
	for name, c := range map[string]struct {
		hosts, per int
		relay      bool
		want, each int // number of delegates: of all hosts; of each host, where 0 counts as 1
	}{
		"few hosts":            {hosts: 5, per: 20, want: 8, each: 2},
		"few hosts, relay":     {hosts: 5, per: 20, relay: true},
		"many hosts":           {hosts: 41, per: 4, want: 40, each: 1},
		"many hosts, relay":    {hosts: 41, per: 4, relay: true},
		"its own host":         {hosts: 1, per: 40},
		"fewer than the share": {hosts: 3, per: 2, want: 4, each: 2},
	} {
		r := reachOf("new", "host0", c.relay, spread(c.hosts, c.per))
		got := r.delegates()
		if len(got) != c.want {
			t.Errorf("%s: %d delegates, want %d", name, len(got), c.want)
		}
		for host, n := range perHost(got) {
			if host == "host0" || n != max(c.each, 1) {
				t.Errorf("%s: %d delegates of %s", name, n, host)
			}
		}
		if all := r.targets(); len(r.members) > maxReached && len(all) > c.want+maxDeciders {
			t.Errorf("%s: %d targets", name, len(all))
		}
		if again := r.delegates(); !slices.EqualFunc(got, again, func(a, b Member) bool { return a.ID == b.ID }) {
			t.Errorf("%s: first %v, then %v", name, got, again)
		}
	}
}

// A member that was not reached while the group was small stays a target when the group is large,
// until it is reached. Until then offers list the member as unreachable, and the group does not
// admit the newcomer.
func TestTargetsHoldAllUnreached(t *testing.T) {
	r := reachOf("new", "host0", false, spread(2, 8))
	cut := r.members[7].ID // neither a decider nor on another host
	for _, m := range r.members {
		r.note(m.ID, m.ID == cut, false)
	}
	r.members = spread(4, 16)
	isTarget := func() bool {
		return slices.ContainsFunc(r.targets(), func(m Member) bool { return m.ID == cut })
	}
	var o offer
	r.describe(&o, time.Time{})
	if !slices.Equal(o.Unreached, []ID{cut}) || !isTarget() {
		t.Fatalf("the offer lists %v, and %s is a target: %v", o.Unreached, cut, isTarget())
	}
	r.note(cut, false, false)
	o = offer{}
	r.describe(&o, time.Time{})
	if len(o.Unreached) > 0 || isTarget() {
		t.Errorf("after an answer the offer lists %v, and %s is a target: %v", o.Unreached, cut, isTarget())
	}
}

// A silent peer counts as unreachable only if no other peer of its host has answered. A peer at
// whose addresses no process listens counts as unreachable in any case.
func TestUnreachable(t *testing.T) {
	r := reachOf("new", "elsewhere", false, spread(3, 2))
	r.note("00-00", false, false)
	r.note("00-01", false, true) // silent, and its host has answered
	r.note("01-00", false, true) // silent, like its whole host
	r.note("01-01", false, true)
	r.note("02-00", false, false)
	r.note("02-01", true, false) // gone
	var got []ID
	for _, m := range r.unreachable(r.members) {
		got = append(got, m.ID)
	}
	if want := []ID{"01-00", "01-01", "02-01"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The newcomers of a host have different delegates, so no member is the delegate of all.
func TestDelegatesDiffer(t *testing.T) {
	members := spread(2, 40)
	chosen := make(map[ID]int)
	for i := range 40 {
		for _, m := range reachOf(ID(fmt.Sprintf("newcomer-%02d-of-host", i)), "host0", false, members).delegates() {
			chosen[m.ID]++
		}
	}
	// 40 newcomers with 8 delegates each, of 40 members.
	for _, m := range members[40:] {
		if n := chosen[m.ID]; n < 1 || n > 20 {
			t.Errorf("%s is a delegate of %d newcomers of 40", m.ID, n)
		}
	}
}

// A peer that has answered before may be late once. Each offer without an answer doubles the
// patience for the next one.
func TestLatePeer(t *testing.T) {
	r := reachOf("new", "h", false, nil)
	check := func(step string, cutOff bool, patience time.Duration) {
		t.Helper()
		if r.cutOff["a"] != cutOff || r.patience("a") != patience {
			t.Errorf("%s: cut off %v, patience %v; want %v, %v", step, r.cutOff["a"], r.patience("a"), cutOff, patience)
		}
	}
	check("before the first offer", false, offerPatience)
	r.note("a", false, true)
	check("late at first", true, 2*offerPatience)
	r.note("a", false, false)
	check("answered", false, offerPatience)
	r.note("a", false, true)
	check("late once", false, 2*offerPatience)
	r.note("a", false, true)
	check("late twice", true, 4*offerPatience)
	for range 10 {
		r.note("a", false, true)
	}
	check("late for long", true, 8*offerPatience)
	r.note("a", true, false)
	check("gone", true, offerPatience)
}

// Members of this host are asked for the state first, and then members that were reached.
func TestDonorOrder(t *testing.T) {
	r := reachOf("new", "host1", false, spread(3, 2))
	r.note("02-01", false, false)
	r.note("00-00", true, false)
	for _, spread := range []bool{false, true} {
		var got []ID
		for _, m := range r.donors(spread) {
			got = append(got, m.ID)
		}
		if spread {
			slices.Sort(got[:2])
			slices.Sort(got[3:])
		}
		if want := []ID{"01-00", "01-01", "02-01", "00-00", "00-01", "02-00"}; !slices.Equal(got, want) {
			t.Errorf("spread %v: got %v, want %v", spread, got, want)
		}
	}
}

// An offer names the peers that were reached and those that were not. If some were not reached, the
// offer requests the list of members, because these peers may have other addresses by now.
// Newcomers that replies do not name for comingTerm are dropped.
func TestDescribe(t *testing.T) {
	now := time.Now()
	r := reachOf("new", "h", false, spread(2, 2))
	r.version = []byte{7}
	r.note("00-00", false, false)
	r.hear([]Member{{ID: "comer"}, {ID: "old"}}, now)
	r.note("comer", false, false)
	var o offer
	r.describe(&o, now)
	if !slices.Equal(o.Met, []ID{"00-00", "comer"}) || len(o.Unreached) > 0 || len(o.Version) == 0 || len(o.Tried) > 0 {
		t.Errorf("%+v", o)
	}
	r.note("old", true, false)
	for _, m := range r.members[1:] {
		r.note(m.ID, m.ID == "01-01", false)
	}
	o = offer{}
	r.describe(&o, now)
	if !slices.Equal(o.Unreached, []ID{"01-01", "old"}) || len(o.Version) > 0 || len(o.Tried) == 0 {
		t.Errorf("with unreached peers: %+v", o)
	}
	if fresh := r.hear([]Member{{ID: "comer"}}, now.Add(comingTerm)); fresh {
		t.Error("a known newcomer counts as new")
	}
	o = offer{}
	r.describe(&o, now.Add(comingTerm))
	if !slices.Equal(o.Unreached, []ID{"01-01"}) || !slices.Equal(o.Met, []ID{"00-00", "00-01", "01-00", "comer"}) {
		t.Errorf("after a while: %+v", o)
	}
}
