package loadbal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/loadbal"
)

// policy returns the policy with a name, which must exist.
func policy(t interface{ Fatal(...any) }, name string) loadbal.Policy {
	p, err := loadbal.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// everyName lists all names that New knows.
func everyName() []string {
	return slices.Concat(loadbal.Names(), loadbal.Variants(), []string{"", "auto"})
}

// reported returns reports of shares that were computed at the given paces, in microseconds per microbatch.
func reported(shares []int, paces []int64) []loadbal.Report {
	reports := make([]loadbal.Report, len(shares))
	for r, b := range shares {
		reports[r] = loadbal.Report{Share: b, Micros: int64(b) * paces[r]}
	}
	return reports
}

// The guarantees of Policy hold for all reports, even for invalid ones.
func TestPoliciesKeepTheirPromises(t *testing.T) {
	for _, name := range everyName() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { keepsPromises(t, name) })
		})
	}
}

// keepsPromises runs two equal policies with random speeds, reports and numbers of microbatches.
func keepsPromises(t *rapid.T, name string) {
	n := rapid.IntRange(1, 6).Draw(t, "ranks")
	report := rapid.Custom(func(t *rapid.T) loadbal.Report {
		return loadbal.Report{
			Share:  rapid.OneOf(rapid.IntRange(-1, 64), rapid.IntRange(1, 1<<19), rapid.Int()).Draw(t, "share"),
			Micros: rapid.OneOf(rapid.Int64Range(-1, 1000), rapid.Int64()).Draw(t, "micros"),
			Max:    rapid.OneOf(rapid.IntRange(-1, 40), rapid.Int()).Draw(t, "max"),
		}
	})
	p, twin := policy(t, name), policy(t, name)
	speeds := rapid.SliceOfN(rapid.Int64(), n, n).Draw(t, "speeds")
	p.Begin(speeds)
	twin.Begin(speeds)
	var reports []loadbal.Report
	var before []int
	for range rapid.IntRange(1, 8).Draw(t, "steps") {
		microbatches := rapid.SampledFrom([]int{0, 1, 5, 64, 64, 64, 1<<19 - 1}).Draw(t, "microbatches")
		shares, why := p.Next(reports, microbatches)
		again, _ := twin.Next(reports, microbatches)
		if !slices.Equal(shares, again) {
			t.Fatalf("two equal policies: %v and %v", shares, again)
		}
		if before != nil && slices.Equal(before, shares) != (why == "") {
			t.Fatalf("%v after %v, because %q", shares, before, why)
		}
		inBounds(t, reports, shares, microbatches)
		if forecast := p.Forecast(); len(forecast) != n || slices.Min(forecast) < 0 {
			t.Fatalf("forecast %v", forecast)
		}
		before, reports = slices.Clone(shares), rapid.SliceOfN(report, n, n).Draw(t, "reports")
		shares[0] = -1 // the caller owns the shares: the policy must not read them again
	}
}

// inBounds checks the sum and the bounds of shares against the last reports.
func inBounds(t *rapid.T, reports []loadbal.Report, shares []int, microbatches int) {
	sum, room := 0, 0
	for r, b := range shares {
		sum += b
		if most := bound(reports, r); most > 0 {
			room += min(most, microbatches)
		} else {
			room += microbatches
		}
	}
	if sum != microbatches {
		t.Fatalf("shares %v of %d microbatches", shares, microbatches)
	}
	for r, b := range shares {
		most := bound(reports, r)
		if room >= microbatches && most > 0 && b > most {
			t.Fatalf("rank %d has %d of at most %d: %v", r, b, most, shares)
		}
		if room >= microbatches && microbatches >= len(shares) && b < 1 {
			t.Fatalf("rank %d has nothing: %v", r, shares)
		}
	}
}

// bound returns the last reported Max of a rank, 0 for none.
func bound(reports []loadbal.Report, rank int) int {
	if reports == nil {
		return 0
	}
	return max(0, reports[rank].Max)
}

// A time close to the largest integer is treated as a long time: no product overflows.
func TestEndlessTimes(t *testing.T) {
	for _, name := range []string{"lbbsp-cpu", "lbb", "proportional"} {
		p := policy(t, name)
		p.Begin(make([]int64, 3))
		shares, _ := p.Next(nil, 30)
		reports := reported(shares, []int64{100, 100, 100})
		reports[1].Micros = math.MaxInt64
		if shares, _ = p.Next(reports, 30); !slices.Equal(shares, []int{15, 1, 14}) {
			t.Errorf("%s: %v", name, shares)
		}
	}
}

// Begin forgets the previous session. After Begin a used policy acts like a new one.
func TestBeginForgets(t *testing.T) {
	for _, name := range everyName() {
		used, fresh := policy(t, name), policy(t, name)
		used.Begin(make([]int64, 3))
		shares, _ := used.Next(nil, 30)
		for range 5 {
			shares, _ = used.Next(reported(shares, []int64{100, 200, 900}), 30)
		}
		speeds := []int64{loadbal.SpeedUnit, 0}
		used.Begin(speeds)
		fresh.Begin(speeds)
		a, _ := used.Next(nil, 30)
		b, _ := fresh.Next(nil, 30)
		for range 5 {
			if !slices.Equal(a, b) {
				t.Fatalf("%s: %v, a new one %v", name, a, b)
			}
			a, _ = used.Next(reported(a, []int64{500, 300}), 30)
			b, _ = fresh.Next(reported(b, []int64{500, 300}), 30)
		}
	}
}

// All policies except equal derive the first shares from the known speeds.
func TestBeginTakesSpeeds(t *testing.T) {
	for _, name := range everyName() {
		p := policy(t, name)
		// The speed of the third rank is unknown. The policy assumes the median of the known paces,
		// 2000 us.
		p.Begin([]int64{loadbal.Speed(10, 10_000), loadbal.Speed(10, 40_000), 0, loadbal.Speed(1, 2000)})
		want := []int{6, 1, 3, 3}
		if name == "equal" {
			want = []int{4, 3, 3, 3}
		}
		if shares, why := p.Next(nil, 13); !slices.Equal(shares, want) || why != "" {
			t.Errorf("%s: %v %q, want %v", name, shares, why, want)
		}
	}
}

// A new bound holds in the next step, in which the other ranks compute the remaining microbatches.
func TestBoundsAreKept(t *testing.T) {
	for _, name := range everyName() {
		p := policy(t, name)
		p.Begin(make([]int64, 3))
		shares, _ := p.Next(nil, 30)
		for step := range 20 {
			reports := reported(shares, []int64{100, 100, 100})
			reports[1].Max = 4
			if shares, _ = p.Next(reports, 30); !slices.Equal(shares, []int{13, 4, 13}) {
				t.Fatalf("%s, step %d: %v", name, step, shares)
			}
		}
	}
}

// The reason for a change contains the rank, its shares, its cost and the step time.
func TestWhyTellsTheReason(t *testing.T) {
	p := policy(t, "")
	p.Begin(make([]int64, 4))
	shares, _ := p.Next(nil, 512)
	shares, _ = p.Next(reported(shares, []int64{800, 800, 800, 800}), 512)
	shares, why := p.Next(reported(shares, []int64{800, 800, 800, 3200}), 512)
	if !strings.HasPrefix(why, "rank 3: 128 to 39 microbatches, at 3.2") || !strings.Contains(why, "step 126.") {
		t.Errorf("why = %q", why)
	}
	if _, why = p.Next(reported(shares, []int64{800, 800, 800, 3200}), 100); !strings.HasPrefix(why, "100 microbatches instead of 512; step 24.") {
		t.Errorf("why = %q", why)
	}
}

// An unknown name is an error that quotes the name.
func TestNewOfAnUnknownName(t *testing.T) {
	if _, err := loadbal.New("fastest"); err == nil || !strings.Contains(err.Error(), `"fastest"`) {
		t.Errorf("error %v", err)
	}
}

// Next panics on reports for another number of ranks, which are a mistake of the caller.
func TestNextPanicsOnTheCallersMistake(t *testing.T) {
	for _, name := range everyName() {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			p := policy(t, name)
			p.Begin(make([]int64, 3))
			p.Next(make([]loadbal.Report, 2), 5)
		}()
	}
}

// Speed is 0 if unknown, and at least 1 otherwise.
func TestSpeed(t *testing.T) {
	for _, tt := range []struct {
		share        int
		micros, want int64
	}{{1, 1_000_000, loadbal.SpeedUnit}, {10, 5_000_000, 2 * loadbal.SpeedUnit}, {0, 5, 0}, {5, 0, 0}, {1, 1 << 60, 1}} {
		if got := loadbal.Speed(tt.share, tt.micros); got != tt.want {
			t.Errorf("Speed(%d, %d) = %d, want %d", tt.share, tt.micros, got, tt.want)
		}
	}
}

// tracking runs the default policy for a step at each of the given paces, and returns the shares of each step.
func tracking(t interface{ Fatal(...any) }, microbatches int, paces [][]int64) [][]int {
	p := policy(t, "")
	p.Begin(make([]int64, len(paces[0])))
	shares, _ := p.Next(nil, microbatches)
	all := [][]int{shares}
	for _, row := range paces {
		shares, _ = p.Next(reported(shares, row), microbatches)
		all = append(all, shares)
	}
	return all
}

// Shares change in the first step after a rank has become slow. After it has become fast again they change in the second step,
// because a single fast step may be chance.
func TestDefaultFollowsWithinTwoSteps(t *testing.T) {
	slow, fast := []int64{800, 800, 800, 3200}, []int64{800, 800, 800, 800}
	all := tracking(t, 512, [][]int64{fast, fast, fast, slow, slow, slow, slow, slow, fast, fast})
	for i, want := range [][]int{3: {128, 128, 128, 128}, 4: {158, 158, 157, 39}, 8: {158, 158, 157, 39}, 10: {128, 128, 128, 128}} {
		if want != nil && !slices.Equal(all[i], want) {
			t.Errorf("after %d steps %v, want %v", i, all[i], want)
		}
	}
}

// The short step at the end of a pass does not change the shares of full steps: noise after the short step is ignored like
// noise after any other step. A lasting change of speed shows in the next full step.
func TestDefaultKeepsSharesOverShortSteps(t *testing.T) {
	p, seed := policy(t, ""), uint64(7)
	p.Begin(make([]int64, 4))
	shares, _ := p.Next(nil, 512)
	for step := range 120 {
		paces := []int64{800, 800, 800, 800}
		if step >= 75 { // one rank becomes four times as slow
			paces[2] *= 4
		}
		for r := range paces { // up to 2 % of noise
			seed = seed*6364136223846793005 + 1442695040888963407
			paces[r] += paces[r] * int64(seed>>33%41) / 2000
		}
		microbatches, want := 512, []int{128, 128, 128, 128}
		if (step+1)%15 == 0 {
			microbatches, want = 332, []int{83, 83, 83, 83}
		}
		shares, _ = p.Next(reported(shares, paces), microbatches)
		if step < 75 && !slices.Equal(shares, want) || step >= 75 && shares[2]*3 > shares[0] {
			t.Errorf("after step %d %v, want %v", step, shares, want)
		}
	}
}

// If all ranks become slower or faster by the same ratio, shares do not change.
func TestDefaultKeepsSharesWhereAllChange(t *testing.T) {
	var paces [][]int64
	for _, pace := range []int64{500, 500, 2000, 2000, 2000, 100, 100, 100} {
		paces = append(paces, []int64{pace, pace, pace})
	}
	for i, shares := range tracking(t, 30, paces) {
		if !slices.Equal(shares, []int{10, 10, 10}) {
			t.Errorf("after %d steps %v", i, shares)
		}
	}
}

// A rank that is a thousand times slower than the other ranks keeps one microbatch.
func TestDefaultWithAFarSlowerRank(t *testing.T) {
	paces := []int64{100, 100, 100, 100_000}
	for i, shares := range tracking(t, 514, slices.Repeat([][]int64{paces}, 20))[1:] {
		if !slices.Equal(shares, []int{171, 171, 171, 1}) {
			t.Errorf("after %d steps %v", i+1, shares)
		}
	}
}

// The default policy also balances ten thousand ranks.
func TestDefaultWithManyRanks(t *testing.T) {
	paces := manyPaces(10_000)
	all := tracking(t, 320_000, [][]int64{paces, paces, paces})
	sum := 0
	for r, b := range all[3] {
		sum += b
		if want := 32 * 1500 / paces[r]; abs(int64(b)-want) > want/4 {
			t.Fatalf("rank %d has %d at a pace of %d", r, b, paces[r])
		}
	}
	if sum != 320_000 {
		t.Errorf("%d microbatches", sum)
	}
}

// manyPaces returns deterministic paces between 1000 and 2000.
func manyPaces(n int) []int64 {
	paces := make([]int64, n)
	for r := range paces {
		paces[r] = 1000 + int64(r)*7919%1000
	}
	return paces
}

// abs returns the absolute value of x.
func abs(x int64) int64 { return max(x, -x) }

// The package has no floating-point numbers, whose results may differ between processors.
func TestOnlyIntegers(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, isLit := n.(*ast.BasicLit)
			id, isID := n.(*ast.Ident)
			if !strings.HasSuffix(name, "_test.go") && (isLit && lit.Kind == token.FLOAT || isID && strings.HasPrefix(id.Name, "float")) {
				t.Errorf("%s has a floating-point number", name)
			}
			return true
		})
	}
}

// BenchmarkDefaultNext measures a step of the default policy with ten thousand ranks.
func BenchmarkDefaultNext(b *testing.B) {
	p, paces := policy(b, ""), manyPaces(10_000)
	p.Begin(make([]int64, len(paces)))
	shares, _ := p.Next(nil, 320_000)
	for b.Loop() {
		shares, _ = p.Next(reported(shares, paces), 320_000)
	}
}

func ExampleNew() {
	policy, err := loadbal.New("lbbsp-cpu")
	if err != nil {
		panic(err)
	}
	policy.Begin(make([]int64, 2)) // the speeds of both ranks are unknown
	shares, _ := policy.Next(nil, 12)
	fmt.Println(shares)
	shares, why := policy.Next([]loadbal.Report{{Share: 6, Micros: 6000}, {Share: 6, Micros: 12000}}, 12)
	fmt.Println(shares, why)
	// Output:
	// [6 6]
	// [8 4] rank 0: 6 to 8 microbatches, at 1.000 ms each and 0.000 ms fixed; step 8.000 ms instead of 12.000 ms
}

// The policy "equal" keeps equal shares whatever they cost. The other policies reach the optimum.
func TestSettled(t *testing.T) {
	costs := []loadbal.Cost{{Each: 1000, Min: 1}, {Fixed: 500, Each: 10000, Min: 1}, {Each: 1000, Min: 1, Max: 2}}
	settled := func(name string) []int { return policy(t, name).Settled(costs, 12) }
	if got := settled("equal"); !slices.Equal(got, []int{5, 5, 2}) {
		t.Errorf("equal: %v", got)
	}
	if got, want := settled("auto"), loadbal.Optimum(costs, 12); !slices.Equal(got, want) {
		t.Errorf("auto: %v, want %v", got, want)
	}
	if costs[1].Each != 10000 {
		t.Error("the costs were changed")
	}
}

// Each policy arrives at the step time of its Settled when the costs stay constant. A new policy that fails here needs a Settled of
// its own.
func TestSettledSharesAreReached(t *testing.T) {
	costs := []loadbal.Cost{{Each: 8_000_000, Min: 1}, {Each: 2_000_000, Min: 1}, {Each: 1_000_000, Min: 1}}
	const microbatches = 13 // 1, 4 and 8 take equally long, so one microbatch more at any rank makes a step longer
	for _, name := range everyName() {
		policy := policy(t, name)
		policy.Begin(make([]int64, len(costs)))
		shares, _ := policy.Next(nil, microbatches)
		for range 300 {
			reports := make([]loadbal.Report, len(costs))
			for r, c := range costs {
				reports[r] = loadbal.Report{Share: shares[r], Micros: c.Time(shares[r]) / 1000}
			}
			shares, _ = policy.Next(reports, microbatches)
		}
		predicted := policy.Settled(costs, microbatches)
		if got, want := loadbal.Slowest(costs, shares), loadbal.Slowest(costs, predicted); got != want {
			t.Errorf("%s settles on %v with a step of %v, but its Settled is %v with %v: give it a Settled of its own",
				name, shares, time.Duration(got), predicted, time.Duration(want))
		}
	}
}
