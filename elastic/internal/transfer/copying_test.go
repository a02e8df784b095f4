package transfer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// claimed is a range that a donor has claimed.
type claimed struct{ donor, first, count int }

// chunk returns the bytes of a chunk in TestClaims.
func chunk(i int) []byte { return []byte{byte(i)} }

// newClaims returns a copy of a snapshot of so many chunks, after the election.
func newClaims(chunks, donors int) *copying {
	m := &manifest{bytes: int64(chunks), chunk: 1}
	for i := range chunks {
		m.hashes = append(m.hashes, sumOf(chunk(i)))
	}
	c := &copying{chooser: &chooser{odd: map[string]bool{}}, end: func() {}, elected: m, left: chunks,
		chunks: make([][]byte, chunks), asked: make([]int, chunks)}
	for range donors {
		c.hands = append(c.hands, &hand{vote: m})
	}
	return c
}

// Every missing chunk is claimed: first the chunks that no donor has claimed, in order, and then
// those of other donors.
func TestClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks := rapid.IntRange(0, 60).Draw(t, "chunks")
		donors := rapid.IntRange(1, 5).Draw(t, "donors")
		c := newClaims(chunks, donors)
		done := map[int]bool{}
		var out []claimed
		open := func() (list []int) {
			for i := range chunks {
				if !done[i] && !slices.ContainsFunc(out, func(r claimed) bool { return r.first <= i && i < r.first+r.count }) {
					list = append(list, i)
				}
			}
			return list
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				donor := rapid.IntRange(0, donors-1).Draw(t, "donor")
				if slices.ContainsFunc(out, func(r claimed) bool { return r.donor == donor }) {
					return // one range at a time
				}
				before := open()
				first, count := c.claim(c.hands[donor])
				if (count > 0) != (len(done) < chunks) || count > maxRange {
					t.Fatalf("%d chunks are claimed while %d of %d are missing", count, chunks-len(done), chunks)
				}
				for i := range count {
					if done[first+i] || len(before) > 0 && (i >= len(before) || before[i] != first+i) {
						t.Fatalf("chunk %d is claimed, open were %v", first+i, before)
					}
				}
				if count > 0 {
					out = append(out, claimed{donor, first, count})
				}
			},
			"deliver and release": func(t *rapid.T) {
				if len(out) == 0 {
					return
				}
				k := rapid.IntRange(0, len(out)-1).Draw(t, "range")
				r := out[k]
				out = slices.Delete(out, k, k+1)
				for i := range rapid.IntRange(0, r.count).Draw(t, "sent") {
					if err := c.deliver(c.hands[r.donor], r.first+i, chunk(r.first+i)); err != nil {
						t.Fatal(err)
					}
					done[r.first+i] = true
				}
				c.release(r.first, r.count)
			},
			"": func(t *rapid.T) {
				if c.left != chunks-len(done) || c.needs(0, chunks) != (c.left > 0) {
					t.Fatalf("%d chunks are left, not %d", c.left, chunks-len(done))
				}
			},
		})
	})
}

// The ranges get shorter as the copy proceeds.
func TestRangesShrink(t *testing.T) {
	c := newClaims(100, 4)
	var sizes []int
	for c.left > 0 {
		first, count := c.claim(c.hands[0])
		for i := first; i < first+count; i++ {
			if err := c.deliver(c.hands[0], i, chunk(i)); err != nil {
				t.Fatal(err)
			}
		}
		c.release(first, count)
		sizes = append(sizes, count)
	}
	if sizes[0] != 13 || sizes[len(sizes)-1] != 1 || !slices.IsSortedFunc(sizes, func(a, b int) int { return b - a }) {
		t.Errorf("ranges of %v chunks", sizes)
	}
}
