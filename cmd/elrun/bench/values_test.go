package bench

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
)

// The expected results agree with a reduction that is computed element by element.
func TestReducedTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 16).Draw(t, "ranks")
		offset := rapid.IntRange(0, 1<<20).Draw(t, "offset")
		iter := rapid.IntRange(0, 1000).Draw(t, "iteration")
		v := newValues[int64]("sum", n)
		got := make([]int64, 20)
		for r := range n {
			one := make([]int64, len(got))
			v.fill(one, v.start(r, offset, iter))
			for i := range got {
				got[i] += one[i]
				if want := int64(7*r+3*(offset+i)+5*iter) % 1021; one[i] != want {
					t.Fatalf("input of rank %d at %d is %d, want %d", r, offset+i, one[i], want)
				}
			}
		}
		if wrong := v.check(got, span{offset: offset, ranks: n}, iter); wrong != 0 {
			t.Fatalf("%d sums wrong", wrong)
		}
	})
}

// Each wrong element is counted, wherever it is.
func TestWrongIsCounted(t *testing.T) {
	v := newValues[float32]("max", 4)
	for bad := range 10 {
		got := make([]float32, 10)
		v.fill(got, v.start(2, 5, 1))
		s := span{offset: 5, from: 2}
		if wrong := v.check(got, s, 1); wrong != 0 {
			t.Fatalf("%d of the right elements counted as wrong", wrong)
		}
		got[bad]++
		if wrong := v.check(got, s, 1); wrong != 1 {
			t.Errorf("element %d changed: %d wrong, want 1", bad, wrong)
		}
		if wrong := v.check(got, s, 2); wrong != 10 {
			t.Errorf("another iteration's result: %d wrong, want 10", wrong)
		}
	}
}

func TestRanksDiffer(t *testing.T) {
	v := newValues[dtype.BFloat16]("sum", 13)
	seen := map[int]bool{}
	for r := range 13 {
		seen[v.start(r, 3, 1)] = true
	}
	if len(seen) != 13 {
		t.Errorf("13 ranks have %d inputs", len(seen))
	}
}

func TestQuantile(t *testing.T) {
	times := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0.01: 1, 0.5: 5, 0.51: 6, 0.9: 9, 0.99: 10, 1: 10} {
		if got := quantile(times, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile([]float64{3}, 0.5); got != 3 {
		t.Errorf("quantile of one is %v", got)
	}
}

func TestParseSizes(t *testing.T) {
	got, err := ParseSizes("4,1K, 64k,1M,2g")
	if want := []int{4, 1 << 10, 64 << 10, 1 << 20, 2 << 30}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "K", "0", "-1", "1T", "4,,8", "99999999999999999999", "17G", "1.5K"} {
		if got, err := ParseSizes(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func FuzzParseSizes(f *testing.F) {
	f.Add("4,1K,64M")
	f.Add("K,")
	f.Fuzz(func(t *testing.T, s string) {
		sizes, err := ParseSizes(s)
		for _, n := range sizes {
			if err == nil && (n < 1 || n > maxBytes) {
				t.Errorf("%q: size %d", s, n)
			}
		}
	})
}

func TestOutput(t *testing.T) {
	r := Result{Collective: "allreduce", N: 4, Bytes: 4096, Type: "float32", Op: "sum", Iters: 5}
	r.summarise([]float64{4, 2, 3, 1, 10}, 1.5)
	if r.Min != 1 || r.P50 != 3 || r.Mean != 4 || r.P99 != 10 || r.AlgBW != 1.024 || r.BusBW != 1.536 {
		t.Errorf("summary %+v", r)
	}
	var table bytes.Buffer
	if err := WriteHeader(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteRow(&table); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(table.String(), "\n")
	if len(lines) != 3 || len(lines[0]) != len(lines[1]) {
		t.Errorf("table is not aligned:\n%s", table.String())
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"collective", "n", "bytes", "dtype", "op", "transport", "algorithm", "iters",
		"us_min", "us_p50", "us_mean", "us_p99", "algbw_gbs", "busbw_gbs", "wrong"} {
		if !strings.Contains(string(b), `"`+field+`":`) {
			t.Errorf("no field %s in %s", field, b)
		}
	}
}

func TestParseAnonymous(t *testing.T) {
	for text, want := range map[string]int64{
		"Name:\tx\nRssAnon:\t    1234 kB\nRssFile:\t 5 kB\n": 1234 << 10,
		"Name:\tx\nRssAnon:\t0 kB\n":                         0,
		"Name:\tRssAnon: 7 kB\nVmRSS:\t 5 kB\n":              0,
		"Name:\tx\nRssAnon:\t12 MB\n":                        0,
		"Name:\tx\nRssAnon:\t-1x kB\n":                       0,
		"Name:\tx\nRssAnon:\t9223372036854775807 kB\n":       0,
		"": 0,
	} {
		if got := parseAnonymous(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

// The round with the median time counts, with the wrong elements of all rounds. The choice of auto has
// a star in the table.
func TestMiddle(t *testing.T) {
	r := middle([]Result{{P50: 3, Mean: 4, Wrong: 1}, {P50: 9, Mean: 10}, {P50: 1, Mean: 20, Wrong: 2}})
	if r.P50 != 3 || r.Mean != 4 || r.Wrong != 3 {
		t.Errorf("got %+v", r)
	}
	r.Algorithm, r.Auto = "ring", true
	var row strings.Builder
	if err := r.WriteRow(&row); err != nil || !strings.HasSuffix(row.String(), " ring*\n") {
		t.Errorf("row %q, %v", row.String(), err)
	}
}
