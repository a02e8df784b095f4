package kernel

import (
	"bytes"
	"testing"
)

// ways returns all combinations of the options of Copying except Next.
func ways() []Copying {
	return []Copying{{}, {NonTemporal: true}, {Prefetchw: true}, {NonTemporal: true, Prefetchw: true}}
}

// A copy is right for every length and alignment and with all options, at every level, with Next shorter and longer than the
// copy. It writes only to its destination.
func TestCopying(t *testing.T) {
	p := newPool[uint8](3)
	next := make([]byte, 1000)
	for _, l := range levels() {
		for n := range 600 {
			for i, how := range ways() {
				how.Next = [2][]byte{next[:n*i/2], next[i:][:n/2]}
				src, _ := aligned[uint8](n, p.r.IntN(cacheLine))
				dst, memory := aligned[uint8](n, n%cacheLine)
				p.fill(src)
				p.fill(memory)
				before := bytes.Clone(memory)
				how.copy(l, dst, src)
				if !bytes.Equal(dst, src) {
					t.Fatalf("%v, non-temporal %v, claim %v: %d bytes come out as others", l, how.NonTemporal, how.Prefetchw, n)
				}
				checkAround(t, memory, before, dst)
			}
		}
	}
}

// A copy allocates nothing, and panics if the lengths differ.
func TestCopyingMisuse(t *testing.T) {
	for _, how := range ways() {
		src, dst := make([]byte, 100), make([]byte, 100)
		if n := testing.AllocsPerRun(10, func() { how.Copy(dst, src) }); n != 0 {
			t.Errorf("non-temporal %v, claim %v: %v allocations", how.NonTemporal, how.Prefetchw, n)
		}
		if panicOf(func() { how.Copy(dst[:99], src) }) == "" {
			t.Errorf("non-temporal %v, claim %v: lengths differ: no panic", how.NonTemporal, how.Prefetchw)
		}
	}
}
