package transfer

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// slabsOf returns slabs of n bytes.
func slabsOf(n int) *slabs {
	s := &slabs{size: 1 << 10, first: n}
	_, _ = s.Write(bytes.Repeat([]byte{1}, n))
	return s
}

// The log agrees with a list of all steps since the last gap, and with the sizes of their updates.
func TestUpdateLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 1000
		l := newUpdateLog(most)
		var all []int64 // steps since the last gap, oldest first
		sizes := map[int64]int64{}
		step, trimmed := int64(10), int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				if step++; rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
					step++
					all = nil
				}
				n := rapid.IntRange(1, 400).Draw(t, "bytes")
				l.append(step, slabsOf(n))
				all, sizes[step] = append(all, step), int64(n)
			},
			"trim": func(t *rapid.T) {
				trimmed = max(trimmed, step-rapid.Int64Range(0, 10).Draw(t, "trim"))
				l.trim(trimmed)
			},
			"": func(t *rapid.T) {
				if l.bytes > most {
					t.Fatalf("%d bytes", l.bytes)
				}
				for after := step - 12; after < step; after++ {
					list := l.after(after, 1<<10, 1<<30)
					if got := l.covers(after, step); got != (len(list) == int(step-after)) && after < step-1 {
						t.Fatalf("covers(%d, %d) is %v, with %d updates", after, step, got, len(list))
					}
					var sum int64
					for i, u := range list {
						s := l.last() - int64(len(list)) + 1 + int64(i)
						if u.bytes != sizes[s] {
							t.Fatalf("update of step %d has %d bytes, not %d", s, u.bytes, sizes[s])
						}
						sum += u.bytes
					}
					if sum != l.since(after) {
						t.Fatalf("%d bytes since %d, not %d", l.since(after), after, sum)
					}
				}
				// The log keeps at least the newest updates since the last gap that fit.
				var kept int64
				for i := len(all) - 1; i >= 0 && kept+sizes[all[i]] <= most && all[i] > trimmed; i-- {
					kept += sizes[all[i]]
				}
				if l.bytes < kept {
					t.Fatalf("%d bytes are kept, of %d that fit", l.bytes, kept)
				}
			},
		})
	})
}

func TestUpdateLogLimits(t *testing.T) {
	l := newUpdateLog(1000)
	if !l.covers(5, 5) || !l.covers(5, 6) || l.covers(5, 7) {
		t.Error("an empty log covers who lacks nothing, or only what may be on its way")
	}
	for s := int64(6); s < 10; s++ {
		l.append(s, slabsOf(100))
	}
	if n := len(l.after(5, 2, 1<<20)); n != 2 {
		t.Errorf("%d updates, not 2", n)
	}
	if n := len(l.after(5, 100, 250)); n != 2 {
		t.Errorf("%d updates of 100 bytes in 250", n)
	}
	if n := len(l.after(5, 100, 1)); n != 1 {
		t.Errorf("%d updates in a byte: one must go at least", n)
	}
	l.append(10, slabsOf(2000))
	if l.bytes != 0 || l.covers(9, 11) || !l.covers(10, 10) {
		t.Errorf("an update larger than the log: %+v", l)
	}
}

// A Reader reads the bytes that were written, whatever the sizes of the writes.
func TestSlabs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &slabs{size: rapid.IntRange(1, 50).Draw(t, "size"), first: rapid.IntRange(0, 50).Draw(t, "first")}
		if rapid.Bool().Draw(t, "spare") {
			s.spare = touched(100, s.size)
		}
		var want []byte
		for _, part := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 120)).Draw(t, "parts") {
			if n, err := s.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
			want = append(want, part...)
		}
		if s.bytes != int64(len(want)) || s.memory() < s.bytes || s.sum() != xxhash.Sum64(want) || len(s.hashes()) != len(s.pieces) {
			t.Fatalf("%d bytes in %d, not %d", s.bytes, s.memory(), len(want))
		}
		if err := iotest.TestReader(&Reader{pieces: s.pieces}, want); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := &Reader{pieces: s.pieces}
		_, _ = io.CopyN(&out, struct{ io.Reader }{r}, int64(len(want)/2))
		n, err := r.WriteTo(&out)
		if err != nil || n != int64(len(want)-len(want)/2) || !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("WriteTo: %d bytes, %v", n, err)
		}
	})
}

// failing is a writer that accepts half of each write.
type failing struct{}

func (failing) Write(b []byte) (int, error) { return len(b) / 2, io.ErrClosedPipe }

func TestReaderWriteToFails(t *testing.T) {
	r := &Reader{pieces: [][]byte{[]byte("some"), []byte("bytes")}}
	if n, err := r.WriteTo(failing{}); n != 2 || err != io.ErrClosedPipe {
		t.Errorf("%d, %v", n, err)
	}
	var rest strings.Builder
	if _, err := r.WriteTo(&rest); err != nil || rest.String() != "mebytes" {
		t.Errorf("%q, %v", rest.String(), err)
	}
}
