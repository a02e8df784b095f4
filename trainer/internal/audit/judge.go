package audit

// Claims are what an auditor says of a member's contribution to a step.
type Claims struct {
	Accused, Auditor int   // ranks
	Computed         Print // by the auditor
}

// Vote is what a rank knows of the contribution of the accused.
type Vote struct {
	Told     Print // by the accused, as the rank has heard it; None if it has not
	Computed Print // by the rank; None if it cannot
}

// Verdict says who is wrong.
type Verdict struct {
	// Wrong has the ranks that are, in ascending order; none if nobody can tell.
	Wrong []int
	// For is how many have come to one fingerprint, and Of how many could vote.
	For, Of int
}

// Judge decides by the votes of all ranks. All ranks come to the same.
func Judge(c Claims, votes []Vote) Verdict {
	var told, computed []Print
	for _, v := range votes {
		told, computed = append(told, v.Told), append(computed, v.Computed)
	}
	said, _, heard := majority(told)
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

// majority returns what more than half of those say who say something, how many these are,
// and of how many. It is None if there is no such thing.
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
