package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/transport/internal/wire"
)

// drawHeader draws any header that DecodeHeader accepts.
func drawHeader(t *rapid.T) wire.Header {
	h := wire.Header{Kind: wire.Kind(rapid.IntRange(int(wire.Hello), int(wire.End)).Draw(t, "kind"))}
	h.Length = rapid.Uint64Range(0, wire.MaxPayload(h.Kind)).Draw(t, "length")
	if h.Kind == wire.Data {
		h.Seq = rapid.Uint32().Draw(t, "seq")
		h.Comm = rapid.Uint64().Draw(t, "comm")
		h.Call = [wire.CallSize]byte(rapid.SliceOfN(rapid.Byte(), wire.CallSize, wire.CallSize).Draw(t, "call"))
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawHeader(t)
		var b [wire.HeaderSize]byte
		want.Encode(&b)
		got, err := wire.DecodeHeader(&b)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// Other versions and languages rely on the layout, so this test spells it out.
func TestHeaderLayout(t *testing.T) {
	h := wire.Header{Kind: wire.Data, Seq: 0x04030201, Comm: 0x0c0b0a0908070605, Length: 0x0100}
	for i := range h.Call {
		h.Call[i] = byte(100 + i)
	}
	want := []byte{'e', 'l', 1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 0, 0, 0, 0, 0, 0}
	want = append(want, h.Call[:]...)
	var b [wire.HeaderSize]byte
	h.Encode(&b)
	if !bytes.Equal(b[:], want) {
		t.Errorf("got  %v\nwant %v", b, want)
	}
}

func TestHeaderRefused(t *testing.T) {
	tests := map[string]struct {
		spoil func(b *[wire.HeaderSize]byte)
		want  error
	}{
		"zeros":         {func(b *[wire.HeaderSize]byte) { *b = [wire.HeaderSize]byte{} }, wire.ErrMagic},
		"http":          {func(b *[wire.HeaderSize]byte) { copy(b[:], "GET / HTTP/1.1") }, wire.ErrMagic},
		"version":       {func(b *[wire.HeaderSize]byte) { b[2] = 2 }, wire.ErrVersion},
		"no kind":       {func(b *[wire.HeaderSize]byte) { b[3] = 0 }, wire.ErrFormat},
		"unknown kind":  {func(b *[wire.HeaderSize]byte) { b[3] = byte(wire.End) + 1 }, wire.ErrFormat},
		"data too long": {length(wire.Data, wire.MaxData+1), wire.ErrLimit},
		"data huge":     {length(wire.Data, math.MaxUint64), wire.ErrLimit},
		"signal long":   {length(wire.Signal, 513), wire.ErrLimit},
		"probe long":    {length(wire.Probe, 1<<20+1), wire.ErrLimit},
		"revoke long":   {length(wire.Revoke, 513), wire.ErrLimit},
		"offer long":    {length(wire.Offer, 4<<10+1), wire.ErrLimit},
		"choice long":   {length(wire.Choice, 513), wire.ErrLimit},
		"share long":    {length(wire.Share, 513), wire.ErrLimit},
		"refuse long":   {length(wire.Refuse, 513), wire.ErrLimit},
		"hello long":    {length(wire.Hello, 4<<10+1), wire.ErrLimit},
		"bye with body": {length(wire.Bye, 1), wire.ErrLimit},
		"ack with body": {length(wire.Ack, 1), wire.ErrLimit},
		"signal's seq":  {func(b *[wire.HeaderSize]byte) { b[3], b[4] = byte(wire.Signal), 1 }, wire.ErrFormat},
		"bye's call":    {func(b *[wire.HeaderSize]byte) { b[3], b[63] = byte(wire.Bye), 1 }, wire.ErrFormat},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := wire.Header{Kind: wire.Data}
			var b [wire.HeaderSize]byte
			h.Encode(&b)
			test.spoil(&b)
			if _, err := wire.DecodeHeader(&b); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// length returns a function that sets the kind and length of an encoded header.
func length(k wire.Kind, n uint64) func(*[wire.HeaderSize]byte) {
	return func(b *[wire.HeaderSize]byte) {
		b[3] = byte(k)
		binary.LittleEndian.PutUint64(b[16:], n)
	}
}

func TestLongestGreetingFits(t *testing.T) {
	b, err := (&wire.Greeting{Job: string(make([]byte, wire.MaxJob))}).Append(nil)
	if err != nil || uint64(len(b)) > wire.MaxPayload(wire.Hello) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestHeaderAllocates(t *testing.T) {
	h := wire.Header{Kind: wire.Data, Length: 1}
	var b [wire.HeaderSize]byte
	n := testing.AllocsPerRun(100, func() {
		h.Encode(&b)
		h, _ = wire.DecodeHeader(&b)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func drawGreeting(t *rapid.T) wire.Greeting {
	return wire.Greeting{
		Epoch:    rapid.Uint64().Draw(t, "epoch"),
		Lineage:  [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "lineage")),
		Rank:     rapid.Uint32().Draw(t, "rank"),
		Path:     rapid.Uint8().Draw(t, "path"),
		KernelID: [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "kernelID")),
		Job:      rapid.StringN(0, -1, wire.MaxJob).Draw(t, "job"),
	}
}

func TestGreetingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawGreeting(t)
		b, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.DecodeGreeting(b); err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := wire.DecodeGreeting(b[:cut]); !errors.Is(err, wire.ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", cut, len(b), err)
		}
		if _, err := wire.DecodeGreeting(append(b, 0)); !errors.Is(err, wire.ErrFormat) {
			t.Fatalf("one byte more: %v", err)
		}
	})
}

func TestGreetingJobTooLong(t *testing.T) {
	g := wire.Greeting{Job: string(make([]byte, wire.MaxJob+1))}
	if _, err := g.Append(nil); !errors.Is(err, wire.ErrLimit) {
		t.Errorf("got %v", err)
	}
}

func TestKindString(t *testing.T) {
	if got := fmt.Sprint(wire.Hello, wire.Ack, wire.Kind(77)); got != "hello ack kind(77)" {
		t.Errorf("got %s", got)
	}
}

// FuzzHeader checks that a header which can be decoded is within the limits, and is encoded to the same bytes again.
func FuzzHeader(f *testing.F) {
	h := wire.Header{Kind: wire.Data, Seq: 1, Comm: 2, Length: 3}
	var b [wire.HeaderSize]byte
	h.Encode(&b)
	f.Add(b[:])
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b, again [wire.HeaderSize]byte
		copy(b[:], in)
		h, err := wire.DecodeHeader(&b)
		if err != nil {
			return
		}
		if h.Length > wire.MaxPayload(h.Kind) {
			t.Fatalf("%v of %d bytes accepted", h.Kind, h.Length)
		}
		if h.Encode(&again); again != b {
			t.Fatalf("%v became %v", b, again)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	b, err := (&wire.Greeting{Epoch: 1, Rank: 2, Path: 1, Job: "job"}).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		g, err := wire.DecodeGreeting(in)
		if err != nil {
			return
		}
		if out, err := g.Append(nil); err != nil || !bytes.Equal(out, in) {
			t.Fatalf("%v became %v, %v", in, out, err)
		}
	})
}
