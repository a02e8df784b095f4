package member

// Rule names the reason why votes are enough. The zero Rule says that they are not.
type Rule uint8

// The rules, from the strictest on.
const (
	// TooFew: not enough votes under any rule.
	TooFew Rule = iota
	// ByMajority: more than half of the electorate voted.
	ByMajority
	// ByCertain: every survivor voted, and fewer than a majority are certainly dead.
	// Any two sets that satisfy ByMajority or ByCertain share a live voter (doc.go, I10).
	ByCertain
	// BySole: every survivor voted, and the launcher that started every peer ever
	// admitted says that all others are dead.
	BySole
	// ByAnyone: everybody who is not thought gone voted. Two halves may both have that.
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

// forced reports whether the rule lets two views follow one.
func (r Rule) forced() bool { return r == BySole || r == ByAnyone }

// electorate is who decides, as one member knows them. Its slices are by rank and
// equally long.
type electorate struct {
	dead   []bool // certainly
	silent []bool // cannot be reached from here; need not be dead
	sole   bool   // this member's launcher started every peer ever admitted
	any    bool   // --quorum any
	beyond bool   // has members without a vote, as no voter is left
}

// needed returns how many votes are a majority.
func (e electorate) needed() int { return len(e.dead)/2 + 1 }

// rule returns the strictest rule by which the votes are enough.
func (e electorate) rule(voted []bool) Rule {
	votes, dead := 0, 0
	living, reachable := true, true // all of them voted
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
	case votes >= e.needed() && !e.beyond:
		return ByMajority
	case votes > 0 && living && !e.beyond && dead < e.needed():
		return ByCertain
	case votes > 0 && living && e.sole:
		return BySole
	case votes >= e.needed() && e.beyond && e.sole:
		return BySole
	case votes > 0 && reachable && e.any, votes >= e.needed() && e.beyond:
		return ByAnyone
	}
	return TooFew
}

// within returns the strictest rule that can be satisfied by those who are neither
// dead nor silent, and how many they are.
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
