package exact

import (
	"reflect"
	"slices"
	"testing"
)

func address(v []float32) uintptr { return reflect.ValueOf(v).Pointer() }

func TestAligned(t *testing.T) {
	var keep [][]float32 // keeps memory alive, so that addresses vary
	for n := 1; n < 300; n++ {
		v := Aligned(n)
		if address(v)%Alignment != 0 || len(v) != n || cap(v) != n {
			t.Fatalf("%d elements: address %#x, length %d, capacity %d", n, address(v), len(v), cap(v))
		}
		keep = append(keep, v, make([]float32, n%7))
	}
	if len(Aligned(0)) != 0 || keep == nil {
		t.Error("no elements make some")
	}
}

func TestViews(t *testing.T) {
	sizes := []int{1, 16, 17, 0, 100, 3}
	flat, views := Views(sizes)
	for i, v := range views {
		if len(v) != sizes[i] || cap(v) != sizes[i] || len(v) > 0 && address(v)%Alignment != 0 {
			t.Errorf("view %d: length %d of %d, address %#x", i, len(v), sizes[i], address(v))
		}
		for j := range v {
			v[j]++
		}
	}
	if got := slices.Index(flat, 2); got >= 0 {
		t.Errorf("views overlap at %d", got)
	}
	clear(flat)
	for i, v := range views {
		if slices.Contains(v, 1) {
			t.Errorf("view %d is not part of the flat vector", i)
		}
	}
}
