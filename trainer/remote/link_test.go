package remote

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/exact"
)

// The parts of all ranks are disjoint and cover what is missing.
func TestPartsCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 40).Draw(t, "n")
		covered := make([]int, n)
		var done [][2]int64
		for range rapid.IntRange(0, 4).Draw(t, "ranges") {
			lo := rapid.Int64Range(-3, n+3).Draw(t, "lo")
			hi := rapid.Int64Range(lo, n+5).Draw(t, "hi")
			done = append(done, [2]int64{lo, hi})
			for k := max(0, lo); k < min(hi, n); k++ {
				covered[k] = 1
			}
		}
		missing := gaps(done, n)
		ranks := rapid.Int64Range(1, 6).Draw(t, "ranks")
		for rank := range ranks {
			for r := range slices.Chunk(share(missing, rank, ranks), 2) {
				for k := r[0]; k < r[1]; k++ {
					covered[k]++
				}
			}
		}
		for k, times := range covered {
			if times != 1 {
				t.Fatalf("sample %d of %d is covered %d times; missing %v", k, n, times, missing)
			}
		}
	})
}

// A frame survives the wire.
func TestFramesOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := frame{kind: kind(rapid.IntRange(1, int(lastKind)).Draw(t, "kind")), a: rapid.Int64().Draw(t, "a"), b: rapid.Float64().Draw(t, "b"),
			payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload")}
		got, err := readFrame(bytes.NewReader(slices.Concat(f.head(), f.payload)))
		if err != nil || got.kind != f.kind || got.a != f.a || got.b != f.b || !bytes.Equal(got.payload, f.payload) {
			t.Fatalf("got %+v, %v, want %+v", got, err, f)
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add(frame{kind: kindHello, payload: []byte(`{"Version":1}`)}.head())
	f.Add(slices.Concat(frame{kind: kindDone, b: 0.5, payload: []byte("ab")}.head(), []byte("ab")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		got, err := readFrame(r)
		if err == nil && !bytes.Equal(slices.Concat(got.head(), got.payload), b[:len(b)-r.Len()]) {
			t.Errorf("%+v is not what was read", got)
		}
		if errors.Is(err, io.EOF) && len(b) > 0 {
			t.Errorf("an end in the middle of a frame looks like an end between frames")
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte(`{"Version": 2, "GradScale": 0.5, "Params": [{"Name": "w", "Shape": [2, 3], "Offset": 64}], "Grads": [128], "Exact": true, "Samples": 9, "Batch": 3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if err := h.decode(frame{kind: kindHello, payload: b}, "1.2.3"); err != nil {
			return
		}
		memory := kernel.Bytes(exact.Aligned(64))
		m, err := h.model(memory)
		if err != nil {
			return
		}
		for i, p := range m.Params {
			clear(p.Data) // a wrong view would be outside of the memory
			clear(m.Grads[i])
		}
		_ = h.config()
	})
}
