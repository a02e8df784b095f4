package steal_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
	"pgregory.net/rapid"
)

// A queue keeps its range, and both ends can be taken. A word of another try is no queue.
func TestWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		try := rapid.Uint32().Draw(t, "try")
		next := rapid.IntRange(0, steal.Most).Draw(t, "next")
		end := rapid.IntRange(next, steal.Most).Draw(t, "end")
		w := steal.Pack(try, next, end)
		front := rapid.IntRange(0, end-next).Draw(t, "front")
		back := rapid.IntRange(0, end-next-front).Draw(t, "back")
		gotNext, gotEnd, ok := w.Front(front).Back(back).Range(try, steal.Most)
		if gotNext != next+front || gotEnd != end-back || !ok {
			t.Fatalf("[%d, %d) without %d and %d is [%d, %d), %t", next, end, front, back, gotNext, gotEnd, ok)
		}
		if _, _, ok := w.Range(try+1, steal.Most); ok {
			t.Fatal("a word of another try is a queue")
		}
		if _, _, ok := w.Range(try, end-1); ok {
			t.Fatal("a queue ends behind the last position")
		}
		if _, _, ok := steal.Pack(try, end, next).Range(try, steal.Most); ok != (next == end) {
			t.Fatal("a queue ends before it begins")
		}
	})
}

// Any word of another rank gives a range within bounds, or none.
func FuzzWord(f *testing.F) {
	f.Add(uint64(0), uint32(1), 7)
	f.Add(uint64(steal.Pack(3, 2, 5)), uint32(3), 5)
	f.Fuzz(func(t *testing.T, w uint64, try uint32, most int) {
		if next, end, ok := steal.Word(w).Range(try, most); ok && (next < 0 || next > end || end > most) {
			t.Fatalf("[%d, %d) of %d", next, end, most)
		}
	})
}

// Choose, by a search over all numbers of microbatches.
func chosen(thief steal.Rank, all []steal.Rank, latency int64, most int) (victim, n int) {
	rest := func(r steal.Rank, without int) int64 {
		pace := r.Pace
		under := int64(0)
		if r.Under > 0 {
			pace = max(pace, r.Running/int64(r.Under))
			under = max(0, pace*int64(r.Under)-r.Running)
		}
		return under + pace*int64(r.Left+r.Kept-without)
	}
	victim = -1
	for r := range all {
		if all[r].Left > 0 && rest(all[r], 0) > 0 && (victim < 0 || rest(all[r], 0) > rest(all[victim], 0)) {
			victim = r
		}
	}
	if victim < 0 || thief.Pace <= 0 {
		return 0, 0
	}
	v := all[victim]
	best := rest(v, 0)
	for k := 1; k <= min((v.Left+1)/2, most); k++ {
		if end := max(thief.Pace*int64(thief.Kept+k)+latency, rest(v, k)); end < best {
			best, n = end, k
		}
	}
	if n == 0 || rest(v, 0)-best <= thief.Pace/2+latency {
		return 0, 0
	}
	return victim, n
}

func TestChooseIsTheBest(t *testing.T) {
	rank := rapid.Custom(func(t *rapid.T) steal.Rank {
		return steal.Rank{Left: rapid.IntRange(0, 40).Draw(t, "left"), Kept: rapid.IntRange(0, 2).Draw(t, "kept"), Under: rapid.IntRange(0, 3).Draw(t, "under"),
			Running: rapid.Int64Range(0, 2000).Draw(t, "running"), Pace: rapid.Int64Range(0, 500).Draw(t, "pace")}
	})
	rapid.Check(t, func(t *rapid.T) {
		thief := rank.Draw(t, "thief")
		all := rapid.SliceOfN(rank, 1, 6).Draw(t, "all")
		latency, most := rapid.Int64Range(0, 100).Draw(t, "latency"), rapid.IntRange(0, 20).Draw(t, "most")
		victim, n := steal.Choose(thief, all, latency, most)
		wantVictim, want := chosen(thief, all, latency, most)
		if n != want || n > 0 && victim != wantVictim {
			t.Fatalf("%d of rank %d, want %d of %d", n, victim, want, wantVictim)
		}
	})
}

// Without a reason nothing is stolen.
func TestChooseNothing(t *testing.T) {
	for name, all := range map[string][]steal.Rank{
		"nobody":            {{}},
		"nothing left":      {{Kept: 1, Under: 1, Pace: 900}},
		"as far as I":       {{Left: 1, Under: 1, Running: 100, Pace: 100}},
		"a little behind":   {{Left: 2, Under: 1, Running: 60, Pace: 100}},
		"its pace is known": {{Left: 1}},
	} {
		if victim, n := steal.Choose(steal.Rank{Kept: 1, Pace: 100}, all, 1, steal.Most); n > 0 {
			t.Errorf("%s: %d of rank %d", name, n, victim)
		}
	}
	if _, n := steal.Choose(steal.Rank{Kept: 1}, []steal.Rank{{Left: 9, Pace: 100}}, 1, steal.Most); n > 0 {
		t.Errorf("a rank of unknown pace steals %d", n)
	}
}

// history draws the claims of a random history of thefts. reports are what the ranks tell, and owner has the rank that has computed
// each position.
func history(t *rapid.T, ranks int, order []int) (shares []ledger.Set, reports []steal.Report, owner []int) {
	reports, owner = make([]steal.Report, ranks), make([]int, len(order))
	count := make([]int, ranks)
	held := make([]ledger.Set, ranks)
	for r := range ranks {
		shares, held[r] = append(shares, ledger.NewSet(len(order))), ledger.NewSet(len(order))
	}
	for p, end := 0, 0; p < len(order); p++ {
		thief := owner[max(0, p-1)]
		if p >= end {
			thief, end = rapid.IntRange(-ranks, ranks-1).Draw(t, "thief"), min(p+rapid.IntRange(1, 9).Draw(t, "length"), len(order))
			if thief >= 0 && count[thief] < steal.MaxClaims {
				c := steal.Claim{First: p, End: end}
				reports[thief].Claims[count[thief]] = steal.ClaimOf(c.Word())
				count[thief]++
			} else {
				thief, end = p*ranks/len(order), p+1
			}
		}
		owner[p] = thief
		shares[p*ranks/len(order)].Add(order[p])
		held[thief].Add(order[p])
	}
	for r := range reports {
		reports[r].Print = steal.Print(held[r])
	}
	return shares, reports, owner
}

// Each microbatch is held once, by the rank that claims it, or else by the rank whose share it is in.
func TestHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
		order := rapid.Permutation(numbers(rapid.IntRange(1, 150).Draw(t, "microbatches"))).Draw(t, "order")
		shares, reports, owner := history(t, ranks, order)
		held, err := steal.Held(shares, order, reports)
		if err != nil {
			t.Fatal(err)
		}
		for p, k := range order {
			for r, h := range held {
				if h.Has(k) != (r == owner[p]) {
					t.Fatalf("rank %d holds microbatch %d: %t; its owner is %d", r, k, h.Has(k), owner[p])
				}
			}
		}
	})
}

// numbers returns 0 to n-1.
func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// reportsOf returns reports with claims, of ranks that hold sets.
func reportsOf(held []ledger.Set, claims ...[]steal.Claim) []steal.Report {
	reports := make([]steal.Report, len(held))
	for r := range reports {
		reports[r].Print = steal.Print(held[r])
		if r < len(claims) {
			copy(reports[r].Claims[:], claims[r])
		}
	}
	return reports
}

// Without claims nothing is copied.
func TestNothingIsClaimed(t *testing.T) {
	shares := []ledger.Set{{1}, {2}}
	if held, err := steal.Held(shares, []int{0, 1}, reportsOf(shares)); err != nil || &held[0] != &shares[0] {
		t.Errorf("%v, %v", held, err)
	}
}

// Reports that do not fit each other or what a rank holds are an error that names the rank.
func TestReportsThatDoNotFit(t *testing.T) {
	shares, taken := []ledger.Set{{3}, {4}}, []ledger.Set{{1}, {6}}
	for name, c := range map[string]struct {
		reports []steal.Report
		want    string
	}{
		"behind the end": {reportsOf(shares, []steal.Claim{{1, 4}}), "rank 0 has claimed the positions 1 to 4 of 3"},
		"twice":          {reportsOf(shares, []steal.Claim{{0, 2}}, []steal.Claim{{}, {1, 2}}), "ranks 0 and 1 have both claimed microbatch 1"},
		"twice by one":   {reportsOf(shares, []steal.Claim{{0, 2}, {0, 1}}), "ranks 0 and 0 have both claimed"},
		"negative":       {reportsOf(shares, []steal.Claim{steal.ClaimOf(-1 << 33)}), "rank 0 has claimed"},
		"backwards":      {reportsOf(shares, []steal.Claim{{2, 1}}), "rank 0 has claimed"},
		"not told":       {reportsOf(taken), "rank 0 holds other microbatches than [[0 2]]"},
		"not computed":   {reportsOf(shares, nil, []steal.Claim{{1, 2}}), "rank 0 holds other microbatches than [[0 1]]"},
	} {
		if held, err := steal.Held(shares, numbers(3), c.reports); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v, want %q", name, held, err, c.want)
		}
	}
	if held, err := steal.Held(shares, numbers(3), reportsOf(taken, nil, []steal.Claim{{1, 2}})); err != nil || !reflect.DeepEqual(held, taken) {
		t.Errorf("%v, error %v, want %v", held, err, taken)
	}
}

// Any words of a commit record give claims that fit, or an error.
func FuzzHeld(f *testing.F) {
	f.Add(int64(0), int64(1), int64(1)<<32|2, int64(-1), uint64(0))
	f.Add(int64(1)<<32|1, int64(0), int64(0), int64(0), uint64(3))
	f.Fuzz(func(t *testing.T, a, b, c, d int64, first uint64) {
		first &= 0b11111
		reports := reportsOf([]ledger.Set{{first}, {0b11111 &^ first}}, []steal.Claim{steal.ClaimOf(a), steal.ClaimOf(b)},
			[]steal.Claim{steal.ClaimOf(c), steal.ClaimOf(d)})
		held, err := steal.Held([]ledger.Set{{0b11}, {0b11100}}, numbers(5), reports)
		if err == nil && (held[0][0] != first || held[1][0] != 0b11111&^first) {
			t.Fatalf("%v holds %v", reports, held)
		}
	})
}

// Sets that differ in one microbatch, or in two, have different prints.
func TestPrint(t *testing.T) {
	seen := make(map[uint64]ledger.Set)
	for i := range 130 {
		for j := range i + 1 {
			s := ledger.NewSet(130)
			s.Add(i)
			s.Add(j)
			if other, there := seen[steal.Print(s)]; there && !reflect.DeepEqual(other, s) {
				t.Fatalf("%v and %v have one print", s.Ranges(), other.Ranges())
			}
			seen[steal.Print(s)] = s
		}
	}
}

// A rank that has only its last microbatch left takes two of the four that a slow rank has not begun.
func ExampleChoose() {
	thief := steal.Rank{Kept: 1, Pace: 10}
	slow := steal.Rank{Left: 4, Under: 1, Running: 30, Pace: 30}
	victim, n := steal.Choose(thief, []steal.Rank{{}, slow}, 1, steal.Most)
	fmt.Println(n, "of rank", victim)
	// Output: 2 of rank 1
}

// Rank 1 has stolen the last microbatch of rank 0.
func ExampleHeld() {
	shares := []ledger.Set{{0b0011}, {0b1100}}
	reports := []steal.Report{{Print: steal.Print(ledger.Set{0b0001})}, {Print: steal.Print(ledger.Set{0b1110})}}
	reports[1].Claims[0] = steal.Claim{First: 1, End: 2}
	held, err := steal.Held(shares, []int{0, 1, 2, 3}, reports)
	fmt.Println(held[0].Ranges(), held[1].Ranges(), err)
	// Output: [[0 1]] [[1 4]] <nil>
}
