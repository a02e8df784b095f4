package member

import (
	"fmt"
	"slices"
	"strings"
)

// facts are the inputs of dueChange: everything from which a change may follow. Slices are by rank of
// view. Equal facts give equal changes, but members need not have equal facts: the ballot decides
// whose change becomes the next view.
type facts struct {
	view View
	cut  [][2]int // pairs of ranks; the first cannot reach the second
	// here is set, by rank, for the members that have answered the ballot. Without a ballot it is
	// set for the members that this member does not suspect.
	here []bool
	// asking is set while a ballot is under way and here shows the answers to it.
	asking  bool
	dead    []bool   // certain deaths
	leaving []bool   // members that ask to leave
	joins   []Member // admitted newcomers with fresh IDs
	renew   bool     // the session broke, and a new view is needed
	promote bool     // the members without a vote have been present for long enough
	wishes  wishes   // requests about grants
}

// answered reports whether a pair can be ignored: the second member, which the first cannot reach,
// has answered the ballot under way, and does not report the first as unreachable. Then the first
// member only receives messages late: if the two were cut off from each other, each would report
// the other in time. So a slow member cannot put out the members whose messages it receives late.
// This is the refutation of a suspicion in SWIM. In this case Lifeguard (Dadgar, Phillips, Currey,
// 2018) doubts the observer, too, and not the observed member.
func (f *facts) answered(pair [2]int) bool {
	return f.asking && f.here[pair[1]] && !slices.Contains(f.cut, [2]int{pair[1], pair[0]})
}

// add adds a member's report.
func (f *facts) add(h *history, rank int, r *Report) {
	// Reports are combined by logical or and by union, so their order does not matter, except for
	// the order of newcomers.
	f.leaving[rank] = f.leaving[rank] || r.Leaving
	f.renew = f.renew || r.Renew
	f.wishes.add(r)
	for _, id := range r.Unreachable {
		if other := f.view.Rank(id); other >= 0 {
			f.cut = append(f.cut, [2]int{rank, other})
		}
	}
	for _, j := range r.Joins {
		// A newcomer may have asked several members; one admission counts.
		known := slices.ContainsFunc(f.joins, func(m Member) bool { return m.ID == j.Member.ID })
		if !known && h.fresh(f.view, j) {
			f.joins = append(f.joins, j.Member)
		}
	}
}

// dueChange returns the change that is due, and the reason; an empty reason if none is due. It is a pure
// function. All that is due goes into one change, as each view costs two round trips and a new
// session. Votes and renewals need a change only if nothing else is due, as every view gives the
// survivors their votes and is a new session. One change removes members that are kicked, dead or
// cut off and members that asked to leave, and adds the newcomers. If all remaining members want to
// leave the first of them stays for now, so that members that lag behind can still ask a member.
func (f facts) dueChange() (Change, string) {
	var c Change
	var why []string
	kicked, others := f.kicks(f.dead)
	keep := f.kept(kicked)
	f.holdBack(keep)
	// A member is in one list at most, and the first case that applies wins.
	for i, m := range f.view.Members {
		switch {
		case kicked[i]:
			c.Kick = append(c.Kick, m.ID)
			why = append(why, fmt.Sprintf("%s is kicked", m.ID))
		case f.dead[i]:
			c.Lost = append(c.Lost, m.ID)
			why = append(why, fmt.Sprintf("%s is dead", m.ID))
		case !keep[i]:
			c.Lost = append(c.Lost, m.ID)
			why = append(why, fmt.Sprintf("%s and %s cannot reach each other", m.ID, f.acrossFrom(i, keep)))
		case f.leaving[i]:
			c.Left = append(c.Left, m.ID)
			why = append(why, fmt.Sprintf("%s leaves", m.ID))
		}
	}
	for _, id := range others {
		c.Kick = append(c.Kick, id)
		why = append(why, fmt.Sprintf("%s is kicked", id))
	}
	why = append(why, f.grantChanges(&c)...)
	// An empty change is enough: every change gives the members of the old view their votes.
	if len(why) == 0 && f.promote && f.view.Voters < len(f.view.Members) {
		why = append(why, fmt.Sprintf("%d joined members get a vote", len(f.view.Members)-f.view.Voters))
	}
	if len(why) == 0 && f.renew {
		c.Renew = true
		why = append(why, "the session broke")
	}
	return c, strings.Join(why, ", ")
}

// holdBack keeps the first member that wants to leave, if no other member would stay.
func (f facts) holdBack(keep []bool) {
	first := -1
	for i, k := range keep {
		// Some member stays, so all members that want to leave may leave at once.
		if k && !f.leaving[i] {
			return
		}
		if k && first < 0 {
			first = i
		}
	}
	if first >= 0 {
		f.leaving[first] = false
	}
}

// kept marks the members that stay by I13: a largest set of present members that can all reach each
// other, and of several such sets the set with the lowest ranks. A member is absent if another
// member reports it as unreachable and it has not answered in this ballot. All other members count
// as present, even if their answers are late. Absent members stay if no kept member is cut off from
// them. They are considered after the present members because they may outnumber the present
// members, and may all be dead.
func (f facts) kept(kicked []bool) []bool {
	gone := slices.Clone(f.dead)
	for i := range gone {
		gone[i] = gone[i] || kicked[i]
	}
	// First pass: the present members.
	here := slices.Repeat([]bool{true}, len(gone))
	for _, c := range f.cut {
		here[c[1]] = f.here[c[1]]
	}
	out := slices.Clone(gone)
	for i := range out {
		out[i] = out[i] || !here[i]
	}
	keep := newPartitionGraph(f.cut, out).largest()
	// Second pass: the absent members, as far as no kept member is cut off from them.
	copy(out, gone)
	for i := range out {
		out[i] = out[i] || here[i]
	}
	for _, c := range f.cut {
		out[c[0]] = out[c[0]] || keep[c[1]]
		out[c[1]] = out[c[1]] || keep[c[0]]
	}
	for i, k := range newPartitionGraph(f.cut, out).largest() {
		keep[i] = keep[i] || k
	}
	return keep
}

// acrossFrom returns the kept members that i cannot reach, at most three by name.
func (f facts) acrossFrom(i int, keep []bool) string {
	var names []string
	for _, c := range f.cut {
		o := c[0] + c[1] - i // the other end, if i is one end
		if (c[0] != i && c[1] != i) || !keep[o] {
			continue
		}
		if name := string(f.view.Members[o].ID); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("%d others", len(names)-3))
	}
	return strings.Join(names, ", ")
}

// kicks returns the peers to be put out: members by rank, and others by ID. The argument out marks
// the members that are gone in any case. At least one member stays, and no more IDs are barred than
// a view can hold. Requests beyond these limits wait for a later view, and settle does not drop
// them.
func (f facts) kicks(out []bool) (ranks []bool, others []ID) {
	ranks = make([]bool, len(f.view.Members))
	left := 0
	for _, o := range out {
		if !o {
			left++
		}
	}
	room := MaxBarred - len(f.view.Barred)
	for _, id := range f.wishes.kick {
		rank := f.view.Rank(id)
		switch {
		case room == 0 || slices.Contains(f.view.Barred, id):
			continue
		case rank < 0:
			others = append(others, id)
		case out[rank]:
			ranks[rank] = true
		// The request waits until the view has another member.
		case left == 1:
			continue
		default:
			ranks[rank] = true
			left--
		}
		room--
	}
	return ranks, others
}

// grantChanges adds two things to a change: the requests about grants that can be fulfilled, and
// the newcomers. It tries each new grant and each newcomer on the view, in the order of the
// reports, and leaves out each that Apply would refuse: one bad request must not stop the others,
// and a change that Apply refuses is never decided.
func (f facts) grantChanges(c *Change) (why []string) {
	w := f.wishes
	w.settle(f.view)
	can := func(try Change) bool {
		_, _, err := f.view.applyGrants(try)
		return err == nil
	}
	for _, key := range w.revoke {
		c.Revoke = append(c.Revoke, key)
		why = append(why, fmt.Sprintf("%s is revoked", key))
	}
	for _, g := range w.grants {
		try := *c
		try.Grants = append(slices.Clone(c.Grants), g)
		if can(try) {
			*c = try
			why = append(why, fmt.Sprintf("%s issues grant %s", g.Issuer, g.Key))
		}
	}
	// A view is sent whole in one message, so both its encoded size and its number of members are
	// bounded.
	room, bytes := MaxMembers-len(f.view.Members), MaxView-f.view.size-spare
	for _, m := range f.joins {
		try := *c
		try.Join = append(slices.Clone(c.Join), m)
		size := len(appendMember(nil, m))
		if len(c.Join) < room && size <= bytes && can(try) {
			*c = try
			bytes -= size
			why = append(why, fmt.Sprintf("%s joins", m.ID))
		}
	}
	return why
}

// spare is an upper bound, in bytes, of the growth of a view by grants and lengths.
const spare = 256 << 10
