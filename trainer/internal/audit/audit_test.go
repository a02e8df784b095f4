package audit

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slow is an independent implementation of Of with big integers.
func slow(c Coefficients, v []int32) Print {
	p, total := big.NewInt(prime), new(big.Int)
	for i, x := range v {
		r := new(big.Int).SetUint64(c.within[i%block])
		r.Mul(r, new(big.Int).SetUint64(c.blocks[i/block]))
		total.Add(total, r.Mul(r, big.NewInt(int64(x))))
	}
	return Print(total.Mod(total, p).Uint64())
}

func vectors(t *rapid.T, label string, n int) []int32 {
	v := make([]int32, n)
	few := rapid.SliceOfN(rapid.Int32(), 1, 40).Draw(t, label)
	for i := range v {
		v[i] = few[i*i%len(few)]
	}
	return v
}

func TestPrintIsThatOfBigNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "n")
		c := SeedOf(rapid.Int64Range(0, 9).Draw(t, "step"), []uint64{1, 2}).Draw(n)
		v := vectors(t, "v", n)
		if got, want := c.Of(v), slow(c, v); got != want {
			t.Fatalf("%d elements: %d, want %d", n, got, want)
		}
	})
}

func TestPrintOfExtremes(t *testing.T) {
	const n = 2*block + 1
	c := Seed{}.Draw(n)
	for i := range c.within {
		c.within[i] = prime - 1
		c.upTo[i+1] = add(c.upTo[i], multiply(prime-1, offset))
	}
	for _, x := range []int32{0, 1, -1, math.MaxInt32, math.MinInt32} {
		v := slices.Repeat([]int32{x}, n)
		if got, want := c.Of(v), slow(c, v); got != want {
			t.Errorf("%d: %d, want %d", x, got, want)
		}
	}
}

// The fingerprints of parts add up to the fingerprint of the parts' sum. A single changed bit changes the fingerprint.
func TestPrintsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		c := SeedOf(1, []uint64{rapid.Uint64().Draw(t, "nonce")}).Draw(n)
		a, b, sum := vectors(t, "a", n), vectors(t, "b", n), make([]int32, n)
		for i := range sum {
			a[i], b[i] = a[i]/2, b[i]/2
			sum[i] = a[i] + b[i]
		}
		if Sum([]Print{c.Of(a), c.Of(b)}) != c.Of(sum) {
			t.Fatal("they do not add up")
		}
		before := c.Of(a)
		a[rapid.IntRange(0, n-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 31).Draw(t, "bit")
		if c.Of(a) == before {
			t.Fatal("a flipped bit does not show")
		}
	})
}

func TestSumOfNone(t *testing.T) {
	if Sum([]Print{1, None}) != None || Sum(nil) != 0 {
		t.Error("a fingerprint that was not sent counts")
	}
}

func TestSeedsDiffer(t *testing.T) {
	seen := map[Seed]bool{}
	for _, s := range []Seed{SeedOf(1, nil), SeedOf(2, nil), SeedOf(1, []uint64{0}), SeedOf(1, []uint64{0, 1}), SeedOf(1, []uint64{1, 0})} {
		if seen[s] {
			t.Error("two steps or nonces have one seed")
		}
		seen[s] = true
	}
}

// heard returns votes of ranks that have all received the same fingerprint from the accused. computed has the fingerprint that
// each rank has computed itself.
func heard(told Print, computed ...Print) (votes []Vote) {
	for _, c := range computed {
		votes = append(votes, Vote{told, c})
	}
	return votes
}

func TestJudge(t *testing.T) {
	const good, bad, worse = 7, 8, 9
	for name, c := range map[string]struct {
		claims Claims
		votes  []Vote
		wrong  []int
	}{
		"a cheat that stays with it":  {Claims{1, 0, good}, heard(bad, good, bad, good), []int{1}},
		"bad memory, once":            {Claims{1, 0, good}, heard(bad, good, good, good), []int{1}},
		"a false accusation":          {Claims{1, 0, bad}, heard(good, bad, good, good), []int{0}},
		"an auditor with bad memory":  {Claims{1, 0, bad}, heard(good, good, good, good), []int{0}},
		"both wrong":                  {Claims{1, 0, worse}, heard(bad, worse, bad, good, good, good), []int{0, 1}},
		"a voter that lies":           {Claims{1, 0, good}, heard(bad, good, good, worse, good), []int{1, 2}},
		"nothing told":                {Claims{1, 0, good}, heard(None, good, None, good), []int{1}},
		"two that stay with it":       {Claims{1, 0, good}, heard(bad, good, bad), nil},
		"two, one of bad memory once": {Claims{1, 0, good}, heard(bad, good, good), []int{1}},
		"newcomers do not count":      {Claims{1, 0, good}, append(heard(bad, good, bad, good), heard(None, None, None)...), []int{1}},
		"half is no majority":         {Claims{1, 0, good}, heard(bad, good, bad, good, bad), nil},
		"nobody can vote":             {Claims{1, 0, good}, heard(None, None, None), nil},
		"it denies what it told":      {Claims{1, 0, good}, []Vote{{bad, good}, {good, good}, {bad, good}}, []int{1}},
		"two, and one denies":         {Claims{1, 0, good}, []Vote{{bad, good}, {good, good}}, nil},
	} {
		if v := Judge(c.claims, c.votes); !slices.Equal(v.Wrong, c.wrong) {
			t.Errorf("%s: wrong %v, want %v", name, v.Wrong, c.wrong)
		}
	}
}

// While most ranks are honest, no honest rank is named, whatever the others claim. A rank with a false fingerprint is named.
func TestNobodyHonestIsNamed(t *testing.T) {
	const right = 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 9).Draw(t, "ranks")
		liars := rapid.IntRange(0, (n-1)/2).Draw(t, "liars")
		lie := func(what string) Print { return Print(rapid.IntRange(0, 3).Draw(t, what)) }
		c := Claims{Accused: rapid.IntRange(0, n-1).Draw(t, "accused"), Auditor: rapid.IntRange(0, n-1).Draw(t, "auditor"), Computed: right}
		told := Print(right)
		if c.Accused < liars {
			told = lie("told")
		}
		if c.Auditor < liars {
			c.Computed = lie("computed")
		}
		votes := make([]Vote, n)
		for rank := range votes {
			if votes[rank] = (Vote{told, right}); rank < liars {
				votes[rank] = Vote{lie("heard"), lie("vote")}
			}
		}
		wrong := Judge(c, votes).Wrong
		for _, rank := range wrong {
			if rank >= liars {
				t.Fatalf("rank %d of %d liars named", rank, liars)
			}
		}
		if told != right && !slices.Contains(wrong, c.Accused) {
			t.Fatalf("rank %d sent %d and is not named: %v", c.Accused, told, wrong)
		}
	})
}

func BenchmarkPrint(b *testing.B) {
	v := make([]int32, 100_000)
	c := Seed{}.Draw(len(v))
	b.SetBytes(int64(4 * len(v)))
	for b.Loop() {
		c.Of(v)
	}
}
