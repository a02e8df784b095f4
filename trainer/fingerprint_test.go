package trainer

import (
	"slices"
	"testing"
)

// Ranks that differ from the majority are wrong. If several states are equally common, the lowest rank's state is right.
func TestDiffering(t *testing.T) {
	at := func(committed int64, digest uint64) fingerprint { return fingerprint{committed, digest} }
	tests := []struct {
		states []fingerprint
		wrong  []int
		right  fingerprint
	}{
		{[]fingerprint{at(3, 7)}, nil, at(3, 7)},
		{[]fingerprint{at(3, 7), at(3, 7), at(3, 7)}, nil, at(3, 7)},
		{[]fingerprint{at(3, 7), at(3, 8), at(3, 7)}, []int{1}, at(3, 7)},
		{[]fingerprint{at(3, 8), at(3, 7), at(3, 7)}, []int{0}, at(3, 7)},
		{[]fingerprint{at(3, 7), at(3, 8)}, []int{1}, at(3, 7)},
		{[]fingerprint{at(4, 7), at(3, 7), at(4, 7)}, []int{1}, at(4, 7)},
		{[]fingerprint{at(0, 1), at(0, 2), at(0, 2), at(0, 3)}, []int{0, 3}, at(0, 2)},
		{[]fingerprint{at(0, 0), at(0, 5), at(0, 5)}, []int{0}, at(0, 5)},
		{[]fingerprint{at(0, 5), at(0, 0)}, []int{1}, at(0, 5)},
		{[]fingerprint{at(0, 5), at(0, 6), at(0, 6), at(0, 5)}, []int{1, 2}, at(0, 5)},
	}
	for _, tt := range tests {
		if wrong, right := differing(tt.states); !slices.Equal(wrong, tt.wrong) || right != tt.right {
			t.Errorf("%v: ranks %v differ from %v, want %v from %v", tt.states, wrong, right, tt.wrong, tt.right)
		}
	}
}

// The digest of a large model is not computed after every step.
func TestDigestOfLargeModelsIsRarer(t *testing.T) {
	for size, every := range map[int]int64{10: 1, 1 << 18: 1, 1<<18 + 1: 2, 1 << 20: 4} {
		params := paramsOf(size)
		for step := int64(1); step < 9; step++ {
			if got := digestDue(step, params); got != (step%every == 0) {
				t.Errorf("%d elements: digest of step %d is due: %t", size, step, got)
			}
		}
	}
}
