package trainer

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/elrun/elrun/trainer/internal/audit"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"pgregory.net/rapid"
)

func TestEntriesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := resumeReport{state: fingerprint{rapid.Int64().Draw(t, "committed"), rapid.Uint64().Draw(t, "digest")}, attempt: rapid.Int64().Draw(t, "attempt"),
			exponents: rapid.SliceOfN(rapid.Int8(), 0, 20).Draw(t, "exponents"), held: rapid.SliceOfN(rapid.Uint64(), 0, 3).Draw(t, "held"),
			speed: rapid.Int64().Draw(t, "speed"), most: rapid.Int().Draw(t, "most"),
			accusing: accusation{rapid.Int64().Draw(t, "step"), rapid.Uint64().Draw(t, "accused"), audit.Print(rapid.Uint64().Draw(t, "computed"))},
			links:    rapid.SliceOfN(rapid.Custom(func(t *rapid.T) linkCost { return linkCost(rapid.Byte().Draw(t, "pace")) }), 0, 20).Draw(t, "links")}
		if got := decodeResumeReport(e.encode(), len(e.exponents), len(e.links)); fmt.Sprint(got) != fmt.Sprint(e) {
			t.Fatalf("sent %+v, got %+v", e, got)
		}
	})
}

func microbatches(n int, ks ...int) ledger.Set {
	s := ledger.NewSet(n)
	for _, k := range ks {
		s.Add(k)
	}
	return s
}

// The highest attempt counts: microbatches of lower attempts are computed again.
func TestTheHighestAttemptCounts(t *testing.T) {
	all := []resumeReport{{attempt: 0, held: microbatches(6, 0, 1)}, {attempt: 1, held: microbatches(6, 0)}, {attempt: 1, held: microbatches(6, 2, 3)}}
	leader, shares, kept := resumePlan(all, nil, 6)
	if leader != 1 || !reflect.DeepEqual(kept, []bool{false, true, true}) {
		t.Errorf("leader %d, kept %v", leader, kept)
	}
	if got := fmt.Sprint(shares[0].Ranges(), shares[1].Ranges(), shares[2].Ranges()); got != "[[1 2] [4 5]] [[0 1] [5 6]] [[2 4]]" {
		t.Errorf("shares %v", got)
	}
}

// A microbatch that two ranks hold counts once, because the higher rank drops its contribution.
func TestAnOverlapIsThrownAway(t *testing.T) {
	all := []resumeReport{{held: microbatches(4, 1)}, {held: microbatches(4, 1, 2)}}
	if _, shares, kept := resumePlan(all, nil, 4); kept[1] || !kept[0] || shares[1].Has(1) || shares[0].Len()+shares[1].Len() != 4 {
		t.Errorf("kept %v, shares %v and %v", kept, shares[0].Ranges(), shares[1].Ranges())
	}
}

// After the last step there is no open step.
func TestNothingIsOpen(t *testing.T) {
	if leader, shares, kept := resumePlan([]resumeReport{{}, {}}, nil, 0); leader != 0 || shares[1].Len() != 0 || !kept[0] || !kept[1] {
		t.Errorf("leader %d, shares %v, kept %v", leader, shares, kept)
	}
}
