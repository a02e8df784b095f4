package transport

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
)

// drawCall draws any call, including calls that no rank could make.
func drawCall(t *rapid.T) Call {
	c := Call{
		Kind:      Kind(rapid.Byte().Draw(t, "kind")),
		Type:      dtype.Type(rapid.Byte().Draw(t, "type")),
		Algorithm: Algorithm(rapid.Byte().Draw(t, "algorithm")),
		Root:      rapid.Int32().Draw(t, "root"),
		Layout:    rapid.Uint32().Draw(t, "layout"),
		Count:     rapid.Uint64().Draw(t, "count"),
		Segment:   rapid.Uint32().Draw(t, "segment"),
	}
	copy(c.Op[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "op"))
	return c
}

func TestCallRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawCall(t)
		b := want.Append(nil)
		if len(b) != CallSize {
			t.Fatalf("%d bytes, want %d", len(b), CallSize)
		}
		got, err := DecodeCall(b)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		if _, err := DecodeCall(b[:rapid.IntRange(0, CallSize-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a part of a call was decoded")
		}
	})
}

// Append keeps the bytes before the call.
func TestCallAppend(t *testing.T) {
	c := Call{Kind: KindScan, Root: -1}
	if b := c.Append([]byte("before")); !bytes.Equal(b[:6], []byte("before")) || len(b) != 6+CallSize {
		t.Errorf("got %q", b)
	}
}

func TestCallString(t *testing.T) {
	reduce := Call{Kind: KindReduce, Type: dtype.F32, Algorithm: Ring, Root: 2, Count: 1000}
	copy(reduce.Op[:], "sum")
	garbled := Call{Kind: 99, Type: dtype.Int8, Algorithm: 77, Root: -1, Layout: 0xabc}
	copy(garbled.Op[:], "\xff\xfe")
	tests := []struct {
		call Call
		want string
	}{
		{reduce, "reduce float32[1000] sum root 2 by ring"},
		{Call{Kind: KindBarrier, Root: -1}, "barrier"},
		{Call{Kind: KindPoint, Type: dtype.BF16, Algorithm: Direct, Root: -1}, "send/recv bfloat16[0] by direct"},
		{garbled, "kind(99) int8[0] ? layout #00000abc by algorithm(77)"},
	}
	for _, test := range tests {
		if got := test.call.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Every kind has a distinct name.
func TestKindString(t *testing.T) {
	seen := make(map[string]Kind)
	for k := KindAllReduce; k <= KindPoint; k++ {
		if other, ok := seen[k.String()]; ok || strings.Contains(k.String(), "(") {
			t.Errorf("kind %d is called %q as is kind %d", k, k, other)
		}
		seen[k.String()] = k
	}
}

func FuzzDecodeCall(f *testing.F) {
	f.Add([]byte{})
	f.Add(Call{Kind: KindAllReduce, Type: dtype.F64, Root: -1, Count: 7}.Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, CallSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCall(b)
		if (err == nil) != (len(b) >= CallSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		if err != nil {
			return
		}
		_ = c.String()
		again := c.Append(nil)
		again[3] = b[3] // the reserved byte is not kept
		if !bytes.Equal(again, b[:CallSize]) {
			t.Fatalf("%x became %x", b[:CallSize], again)
		}
	})
}
