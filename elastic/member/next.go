package member

import (
	"fmt"
	"slices"
	"strings"
)

// next returns the change that is due, and the reason; an empty reason if none is due. It is a pure
// function. All that is due goes into one change, as each view costs two round trips and a new
// session. Votes and renewals need a change only if nothing else is due, as every view gives the
// survivors their votes and is a new session. One change removes members that are kicked, dead or
// cut off and members that asked to leave, and adds the newcomers. If all remaining members want to
// leave the first of them stays for now, so that members that lag behind can still ask a member.
func next(f facts) (Change, string) {
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
