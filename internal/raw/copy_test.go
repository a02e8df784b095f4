package raw

import (
	"bytes"
	"testing"
)

// Every length and alignment, at every level; nothing else is written.
func TestCopyStream(t *testing.T) {
	p := newPool[uint8](3)
	for _, l := range levels() {
		for n := range 600 {
			src, _ := aligned[uint8](n, p.r.IntN(cacheLine))
			dst, memory := aligned[uint8](n, n%cacheLine)
			p.fill(src)
			p.fill(memory)
			before := bytes.Clone(memory)
			if !copyVectors(l, dst, src) {
				copy(dst, src)
			}
			if !bytes.Equal(dst, src) {
				t.Fatalf("%v: %d bytes come out as others", l, n)
			}
			checkAround(t, memory, before, dst)
		}
	}
}

func TestCopyStreamTypes(t *testing.T) {
	src, dst := []float64{1, 2, 3, 4, 5, 6, 7}, make([]float64, 7)
	if n := testing.AllocsPerRun(10, func() { CopyStream(dst, src) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range dst {
		if dst[i] != src[i] {
			t.Fatalf("copy of %v is %v", src, dst)
		}
	}
	if panicOf(func() { CopyStream(dst[:3], src) }) == "" {
		t.Error("lengths differ: no panic")
	}
}
