package loadbal

import (
	"slices"
	"testing"
)

// A rank is stuck if it delays all other ranks for four steps in a row, has a large fixed part and
// could have a smaller share. If one of these conditions is not met, the rank is not stuck.
func TestStuck(t *testing.T) {
	slow := []Report{{Share: 30, Micros: 1000}, {Share: 30, Micros: 1600}, {Share: 30, Micros: 1000}}
	near := []Report{{Share: 30, Micros: 1000}, {Share: 30, Micros: 1400}, {Share: 30, Micros: 1000}}
	other := []Report{{Share: 30, Micros: 1600}, {Share: 30, Micros: 1000}, {Share: 30, Micros: 1000}}
	least := []Report{{Share: 30, Micros: 1000}, {Share: 1, Micros: 1600}, {Share: 30, Micros: 1000}}
	unmeasured := []Report{{Share: 30}, {Share: 30, Micros: 1600}, {Share: 30}}
	for _, tt := range []struct {
		what  string
		parts int64
		steps [][]Report
		want  []int
	}{
		{"four in a row", 15, [][]Report{slow, slow, slow, slow, slow}, []int{-1, -1, -1, 1, -1}},
		{"one between that is near", 15, [][]Report{slow, slow, near, slow, slow, slow, slow}, []int{-1, -1, -1, -1, -1, -1, 1}},
		{"another one between", 15, [][]Report{slow, slow, slow, other, slow, slow}, []int{-1, -1, -1, -1, -1, -1}},
		{"a small part", 14, [][]Report{slow, slow, slow, slow}, []int{-1, -1, -1, -1}},
		{"no less to have", 15, [][]Report{least, least, least, least}, []int{-1, -1, -1, -1}},
		{"nobody to compare with", 15, [][]Report{unmeasured, unmeasured, unmeasured, unmeasured}, []int{-1, -1, -1, -1}},
	} {
		var d stuckDetector
		var got []int
		costs := slices.Repeat([]Cost{{Each: 1, Min: 1}}, 3)
		for _, reports := range tt.steps {
			got = append(got, d.observe(reports, slices.Repeat([]fixedPart{{parts: tt.parts * fixedUnit}}, 3), costs))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: doubted %v, want %v", tt.what, got, tt.want)
		}
	}
}

// If a fixed part really is large, the shares settle and do not change again and again.
func TestATrueFixedPartIsKept(t *testing.T) {
	p, _ := New("")
	p.Begin(make([]int64, 4))
	var reports []Report
	var before []int
	for step := range 200 {
		shares, _ := p.Next(reports, 128)
		reports = nil
		for r, b := range shares {
			micros := 5_000 + int64(b)*800
			if r == 3 {
				micros = 200_000 + int64(b)*10
			}
			reports = append(reports, Report{Share: b, Micros: micros})
		}
		if step > 20 && !slices.Equal(shares, before) {
			t.Fatalf("step %d: shares %v after %v", step, shares, before)
		}
		before = shares
	}
}
