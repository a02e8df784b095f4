package steal

import (
	"bytes"
	"testing"
)

func TestNote(t *testing.T) {
	want := note{kind: noteTake, try: 7, seq: 1<<32 - 1, rank: Rank{Left: 1, Kept: 2, Under: 3, Running: 4, Pace: mostTime}, latency: 5, most: Most, first: 6, end: 8}
	if got, err := decodeNote(want.encode()); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// Every note of another process is refused, or has numbers within bounds, and is then the note of its encoding.
func FuzzNote(f *testing.F) {
	n := note{kind: noteGive, first: 3, end: 9}
	for _, b := range [][]byte{nil, n.encode(), bytes.Repeat([]byte{0xff}, noteSize), bytes.Repeat([]byte{2}, noteSize)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNote(b)
		if err != nil {
			return
		}
		if again, err := decodeNote(n.encode()); err != nil || again != n {
			t.Errorf("%+v, and again %+v, %v", n, again, err)
		}
		for _, v := range []int{n.rank.Left, n.rank.Kept, n.rank.Under, n.most, n.first, n.end} {
			if v < 0 || v > Most {
				t.Errorf("%+v", n)
			}
		}
	})
}
