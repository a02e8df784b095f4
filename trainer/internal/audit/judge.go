package audit

// Claims are an auditor's statement about a member's contribution to a step.
type Claims struct {
	Accused, Auditor int   // ranks
	Computed         Print // fingerprint that the auditor has computed
}

// Vote is a rank's knowledge about the contribution of the accused.
type Vote struct {
	// Told is the fingerprint that the accused has published, as this rank received it; None if
	// this rank received none.
	Told Print
	// Computed is the fingerprint that this rank has recomputed; None if it could not.
	Computed Print
}

// Verdict is the result of a vote.
type Verdict struct {
	// Wrong has the ranks found wrong, in ascending order; it is empty without a majority.
	Wrong []int
	// For is the number of ranks that computed the majority's fingerprint, and Of the number of
	// ranks that computed any.
	For, Of int
}

// Judge decides by the votes of all ranks. It is a pure function, so all ranks come to the same
// decision.
func Judge(c Claims, votes []Vote) Verdict {
	var told, computed []Print
	for _, v := range votes {
		told, computed = append(told, v.Told), append(computed, v.Computed)
	}
	said, _, heard := majority(told)
	// Without a majority for one published fingerprint, the claim of the accused is unknown.
	right, d := None, Verdict{}
	if right, d.For, d.Of = majority(computed); right == None || said == None && heard > 0 {
		return d
	}
	for rank, v := range votes {
		voted := v.Computed != None && v.Computed != right
		accused := rank == c.Accused && said != right
		auditor := rank == c.Auditor && c.Computed != right
		if voted || accused || auditor {
			d.Wrong = append(d.Wrong, rank)
		}
	}
	return d
}

// majority returns the print that more than half of the voters agree on, its number of votes, and
// the number of voters. Votes of None are not counted. Without a majority it returns None and 0
// votes.
func majority(all []Print) (most Print, times, of int) {
	count := map[Print]int{}
	for _, p := range all {
		if p != None {
			count[p]++
			of++
		}
	}
	for p, n := range count {
		if 2*n > of {
			return p, n, of
		}
	}
	return None, 0, of
}
