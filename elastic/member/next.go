package member

import (
	"fmt"
	"slices"
	"strings"
)

// facts is all from which the next change follows. Its slices are by rank of view.
type facts struct {
	view    View
	cut     [][2]int // pairs of ranks of which one cannot reach the other
	here    []bool   // has answered, or at least is not silent
	asking  bool     // a ballot is under way: here says who has answered it
	dead    []bool
	leaving []bool
	joins   []Member // fresh and not in view
	renew   bool     // a view is wanted in any case
	promote bool     // the members without a vote have shown that they are there
	wishes  wishes
}

// next returns the change that should follow, and why; an empty reason says that
// none is due. Members that are kicked, dead or cut off go, those that asked for it leave,
// those that asked for it join, all in one change. Where all that stay want to leave,
// the first of them waits: someone must be there to be asked.
func next(f facts) (Change, string) {
	var c Change
	var why []string
	kicked, others := f.kicks(f.dead)
	keep := f.kept(kicked)
	f.holdBack(keep)
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
	why = append(why, f.ledger(&c)...)
	if len(why) == 0 && f.promote && f.view.Voters < len(f.view.Members) {
		why = append(why, fmt.Sprintf("%d joined members get a vote", len(f.view.Members)-f.view.Voters))
	}
	if len(why) == 0 && f.renew {
		c.Renew = true
		why = append(why, "the session broke")
	}
	return c, strings.Join(why, ", ")
}

// holdBack lets the first leaver stay if nobody else would.
func (f facts) holdBack(keep []bool) {
	first := -1
	for i, k := range keep {
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

// kept marks the members that stay on account of I13: of the sets of members that
// are here and can all reach each other a largest, and of those the one with the
// lowest ranks. Members of whom nothing was heard come second: they stay if nobody
// misses them. Together they may be more than those that are here, and all dead.
// A member counts as here, however late its answer, if nobody says that it cannot be
// reached: it may well be the only one that has noticed the death of another.
func (f facts) kept(kicked []bool) []bool {
	gone := slices.Clone(f.dead)
	for i := range gone {
		gone[i] = gone[i] || kicked[i]
	}
	here := slices.Repeat([]bool{true}, len(gone))
	for _, c := range f.cut {
		here[c[1]] = f.here[c[1]]
	}
	out := slices.Clone(gone)
	for i := range out {
		out[i] = out[i] || !here[i]
	}
	keep := newCuts(f.cut, out).largest()
	copy(out, gone)
	for i := range out {
		out[i] = out[i] || here[i]
	}
	for _, c := range f.cut {
		out[c[0]] = out[c[0]] || keep[c[1]]
		out[c[1]] = out[c[1]] || keep[c[0]]
	}
	for i, k := range newCuts(f.cut, out).largest() {
		keep[i] = keep[i] || k
	}
	return keep
}

// acrossFrom names the kept members that i cannot reach, three at most.
func (f facts) acrossFrom(i int, keep []bool) string {
	var names []string
	for _, c := range f.cut {
		o := c[0] + c[1] - i // the other end, if i is one
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
