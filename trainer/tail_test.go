package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func anySlot() *rapid.Generator[slot] {
	return rapid.Custom(func(t *rapid.T) slot {
		return slot{samples: rapid.Int64().Draw(t, "samples"), loss: rapid.Float64().Draw(t, "loss"), speed: rapid.Int64().Draw(t, "speed"),
			fault: fault(rapid.Int64().Draw(t, "fault")), digest: rapid.Uint64().Draw(t, "digest"), committed: rapid.Int64().Draw(t, "committed")}
	})
}

// The sum of the ranks' tails gives every slot back to the bit.
func TestTailsSurviveTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SliceOfN(anySlot(), 1, 9).Draw(t, "slots")
		total := make([]int64, len(slots)*slotWords)
		for rank, s := range slots {
			tail := make([]int64, len(total))
			putSlot(tail, rank, s)
			for i, w := range tail {
				total[i] += w
			}
		}
		if got := getSlots(total); !slices.Equal(got, slots) {
			t.Fatalf("sent %+v, got %+v", slots, got)
		}
	})
}

func nameRank(r int) string { return fmt.Sprintf("rank %d", r) }

func TestAgreement(t *testing.T) {
	at := func(committed int64, digest uint64) slot { return slot{committed: committed, digest: digest} }
	tests := []struct {
		slots []slot
		want  []string // parts of the error
	}{
		{[]slot{at(3, 7)}, nil},
		{[]slot{at(3, 7), at(3, 7), at(3, 7)}, nil},
		{[]slot{at(3, 7), at(3, 8), at(3, 7)}, []string{"rank 1 has digest 0000000000000008 after step 3; the others have digest 0000000000000007"}},
		{[]slot{at(3, 8), at(3, 7), at(3, 7)}, []string{"rank 0 has digest 0000000000000008"}},
		{[]slot{at(3, 7), at(3, 8)}, []string{"rank 1 has", "others have digest 0000000000000007"}},
		{[]slot{at(4, 7), at(3, 7), at(4, 7)}, []string{"rank 1 has digest 0000000000000007 after step 3", "after step 4"}},
		{[]slot{at(0, 1), at(0, 2), at(0, 2), at(0, 3)}, []string{"rank 0 has", "rank 3 has"}},
		{[]slot{at(0, 0), at(0, 5), at(0, 5)}, []string{"rank 0 has digest 0000000000000000"}},
		{[]slot{at(0, 5), at(0, 0)}, []string{"rank 1 has digest 0000000000000000"}},
	}
	for _, tt := range tests {
		err := checkAgreement(tt.slots, nameRank)
		if (err != nil) != (tt.want != nil) || err != nil && !errors.Is(err, ErrDiverged) {
			t.Errorf("%+v: error %v, want ErrDiverged: %t", tt.slots, err, tt.want != nil)
		}
		for _, part := range tt.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: error %q lacks %q", tt.slots, err, part)
			}
		}
	}
}

func TestFaultsAreNamed(t *testing.T) {
	params := paramsOf(1, 1)
	tests := map[fault]string{
		faultLoss:         "loss of rank 1",
		faultGradient:     "gradient of a at rank 1",
		faultGradient + 1: "gradient of b at rank 1",
		faultGradient + 2: "fault 4 at rank 1",
		-1:                "fault -1 at rank 1",
	}
	for f, want := range tests {
		err := checkFaults([]slot{{}, {fault: f}, {fault: faultLoss}}, nameRank, params)
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("fault %d: error %v, want %q", f, err, want)
		}
	}
	if err := checkFaults(make([]slot, 3), nameRank, params); err != nil {
		t.Errorf("no fault: error %v", err)
	}
}

func TestAllFinite(t *testing.T) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for n := range 11 {
		v := make([]float32, n)
		for i := range v {
			v[i] = math.MaxFloat32
		}
		if !allFinite(v) {
			t.Errorf("%d finite elements: false", n)
		}
		for i := range v {
			for _, b := range bad {
				v[i] = b
				if allFinite(v) || finite(b) {
					t.Errorf("%v at %d of %d: true", b, i, n)
				}
			}
			v[i] = 0
		}
	}
}
