package member

import "testing"

// flags returns the n lowest bits as a slice.
func flags(n, bits int) []bool {
	s := make([]bool, n)
	for i := range s {
		s[i] = bits>>i&1 == 1
	}
	return s
}

// I10: any two sets of votes that decide without force share a voter, or the first set has counted
// the proposer of the later set as dead. The proposer of a set is one of its voters.
func TestQuorumsMeet(t *testing.T) {
	type quorum struct{ votes, dead int }
	for n := 1; n <= 6; n++ {
		var all []quorum
		for votes := range 1 << n {
			for dead := range 1 << n {
				e := electorate{dead: flags(n, dead), silent: flags(n, 0)}
				if e.rule(flags(n, votes)) != TooFew {
					all = append(all, quorum{votes, dead})
				}
			}
		}
		for _, first := range all {
			for _, later := range all {
				// The dead stay dead. The later proposer is one of the later voters, and alive.
				alive := later.votes &^ later.dead &^ first.dead
				if first.dead&^later.dead == 0 && alive != 0 && first.votes&later.votes == 0 {
					t.Fatalf("%d voters: %b with %b dead, then %b with %b dead", n, first.votes, first.dead, later.votes, later.dead)
				}
			}
		}
	}
}

// Each rule applies to the votes, deaths and suspicions for which it is defined.
func TestRules(t *testing.T) {
	const a, b, c, d, e = 1, 2, 4, 8, 16
	for _, test := range []struct {
		name                string
		n                   int
		votes, dead, silent int
		sole, any           bool
		want                Rule
	}{
		{"alone", 1, a, 0, 0, false, false, ByMajority},
		{"2 of 3", 3, a | c, 0, 0, false, false, ByMajority},
		{"half", 4, a | b, 0, c | d, false, false, TooFew},
		{"half, the rest dead", 4, a | b, c | d, 0, false, false, ByCertain},
		{"half, one of the rest dead", 4, a | b, c, d, false, false, TooFew},
		{"1 of 2, the other dead", 2, b, a, 0, false, false, ByCertain},
		{"less than half, the rest dead", 5, a | b, c | d | e, 0, false, false, TooFew},
		{"the same, one launcher", 5, a | b, c | d | e, 0, true, false, BySole},
		{"one launcher, one only silent", 5, a | b, c | d, e, true, false, TooFew},
		{"any", 5, a, c | d, b | e, false, true, ByAnyone},
		{"any, but one is there", 5, a, c, b | e, false, true, TooFew},
		{"nobody voted, all dead", 2, 0, a | b, 0, true, true, TooFew},
	} {
		el := electorate{dead: flags(test.n, test.dead), silent: flags(test.n, test.silent), sole: test.sole, any: test.any}
		if got := el.rule(flags(test.n, test.votes)); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
