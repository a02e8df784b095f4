package trainer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
	"pgregory.net/rapid"
)

func anyReport() *rapid.Generator[rankReport] {
	return rapid.Custom(func(t *rapid.T) rankReport {
		r := rankReport{samples: rapid.Int64().Draw(t, "samples"), loss: ledger.Sum{Hi: rapid.Int64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
			micros: rapid.Int64().Draw(t, "micros"), maxShare: rapid.Int64().Draw(t, "most"), busy: rapid.Int64().Draw(t, "busy"),
			group: rapid.Int64().Draw(t, "group"), groupNorm: rapid.Float64().Draw(t, "square"), fault: fault(rapid.Int64().Draw(t, "fault")), digest: rapid.Uint64().Draw(t, "digest"),
			committed: rapid.Int64().Draw(t, "committed"), stale: rapid.Bool().Draw(t, "stale"),
			links: linkUpdates{rapid.Int64().Draw(t, "links"), rapid.Int64().Draw(t, "more")},
			nonce: rapid.Uint64().Draw(t, "nonce"), print: rapid.Uint64().Draw(t, "print"), accuses: rapid.Bool().Draw(t, "accuses"),
			stolen: steal.Report{Print: rapid.Uint64().Draw(t, "held"), Claims: [steal.MaxClaims]steal.Claim{{First: rapid.IntRange(0, steal.Most).Draw(t, "first"), End: steal.Most + 1}, {}, {First: 3, End: 4}}}}
		// A run with weights has no audits.
		if w := (ledger.Weights{Given: rapid.Bool().Draw(t, "given"), Skipped: rapid.Bool().Draw(t, "skipped"), Counted: rapid.Bool().Draw(t, "counted")}); w.Differ() {
			w.Sum = ledger.Sum{Hi: rapid.Int64().Draw(t, "weight"), Lo: rapid.Uint64().Draw(t, "fraction")}
			r.weights, r.nonce, r.print = w, 0, 0
		}
		return r
	})
}

// The sum of the ranks' vectors is the commit record, from which every rank's report can be read bit for bit.
func TestRankReportsSurviveTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports := rapid.SliceOfN(anyReport(), 1, 9).Draw(t, "reports")
		words := rapid.SampledFrom([]int{reportWords, reportWords + stealWords}).Draw(t, "words")
		if words == reportWords {
			for rank := range reports {
				reports[rank].stolen = steal.Report{}
			}
		}
		total := make([]int64, len(reports)*words)
		for rank, s := range reports {
			record := make([]int64, len(total))
			s.encode(record, rank, words)
			for i, w := range record {
				total[i] += w
			}
		}
		if got := decodeReports(total, words); !slices.Equal(got, reports) {
			t.Fatalf("sent %+v, got %+v", reports, got)
		}
	})
}

func nameRank(r int) string { return fmt.Sprintf("rank %d", r) }

func TestFaultsAreNamed(t *testing.T) {
	params := paramsOf(1, 1)
	tests := map[fault]string{
		faultLoss:         "loss of rank 1",
		faultGradient:     "gradient of a at rank 1",
		faultGradient + 1: "gradient of b at rank 1",
		faultGradient + 2: "unknown fault 4 at rank 1",
		-1:                "unknown fault -1 at rank 1",
	}
	for f, want := range tests {
		err := checkFaults([]rankReport{{}, {fault: f}, {fault: faultLoss}}, nameRank, params)
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("fault %d: error %v, want %q", f, err, want)
		}
	}
	if err := checkFaults(make([]rankReport, 3), nameRank, params); err != nil {
		t.Errorf("no fault: error %v", err)
	}
}

func TestTotalsAndStale(t *testing.T) {
	reports := []rankReport{{samples: 3, loss: ledger.SumOf(0.5)}, {}, {samples: 4, loss: ledger.SumOf(-0.25)}}
	if samples, loss := totals(reports); samples != 7 || loss.Float() != 0.25 || anyStale(reports) {
		t.Errorf("%d samples, loss %v, stale %t", samples, loss.Float(), anyStale(reports))
	}
	if w := totalWeights(reports); w.Differ() || w.Sum.Float() != 7 || w.Mixed() {
		t.Errorf("weights %+v", w)
	}
	reports[1].stale = true
	if !anyStale(reports) {
		t.Error("one stale rank of three was missed")
	}
}
