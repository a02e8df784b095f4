package member

// Rule is the reason why votes suffice. The zero Rule means that they do not suffice.
type Rule uint8

// The rules, the strictest first.
const (
	// TooFew: not enough votes by any rule.
	TooFew Rule = iota
	// ByMajority: more than half of the electorate voted.
	ByMajority
	// ByCertain: every survivor voted, and fewer than a majority are certainly dead. Any two sets
	// that satisfy ByMajority or ByCertain share a live voter (doc.go, I10).
	ByCertain
	// BySole: every survivor voted, and the launcher that started every peer ever admitted reports
	// that all others are dead.
	BySole
	// ByAnyone: every member that is not suspected voted. Both halves of a partitioned group can
	// satisfy this rule.
	ByAnyone
)

// String returns the rule as it appears in reasons.
func (r Rule) String() string {
	switch r {
	case ByMajority:
		return "majority"
	case ByCertain:
		return "certain deaths"
	case BySole:
		return "all others certainly dead"
	case ByAnyone:
		return "any survivors"
	}
	return "too few"
}

// forced reports whether the rule allows that two views follow one.
func (r Rule) forced() bool { return r == BySole || r == ByAnyone }

// electorate is the set of members that decide the next view, with one member's knowledge of them.
// Its slices are by rank and equally long.
type electorate struct {
	dead      []bool // certainly dead
	silent    []bool // unreachable from here, but not necessarily dead
	sole      bool   // this member's launcher has started every peer ever admitted
	any       bool   // --quorum any
	nonVoters bool   // includes members without a vote, as no voter is left
}

// needed returns the number of votes of a majority.
func (e electorate) needed() int { return len(e.dead)/2 + 1 }

// rule returns the strictest rule by which the votes suffice.
func (e electorate) rule(voted []bool) Rule {
	votes, dead := 0, 0
	living, reachable := true, true // all members that are not dead have voted; all that are neither dead nor silent have voted
	for i, v := range voted {
		switch {
		case v:
			votes++
		case !e.dead[i]:
			living = false
			reachable = reachable && e.silent[i]
		}
		if e.dead[i] {
			dead++
		}
	}
	switch {
	case votes >= e.needed() && !e.nonVoters:
		return ByMajority
	case votes > 0 && living && !e.nonVoters && dead < e.needed():
		return ByCertain
	case votes > 0 && living && e.sole:
		return BySole
	case votes >= e.needed() && e.nonVoters && e.sole:
		return BySole
	case votes > 0 && reachable && e.any, votes >= e.needed() && e.nonVoters:
		return ByAnyone
	}
	return TooFew
}

// within returns the strictest rule that the reachable members, which are neither dead nor silent,
// can satisfy, and the number of reachable members.
func (e electorate) within() (r Rule, present int) {
	voted := make([]bool, len(e.dead))
	for i := range voted {
		voted[i] = !e.dead[i] && !e.silent[i]
		if voted[i] {
			present++
		}
	}
	return e.rule(voted), present
}
