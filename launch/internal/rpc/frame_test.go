package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := frame{
			kind:    kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind")),
			method:  rapid.Uint16().Draw(t, "method"),
			id:      rapid.Uint64().Draw(t, "id"),
			timeout: uint64(rapid.Int64Min(0).Draw(t, "timeout")),
			payload: rapid.SliceOfN(rapid.Byte(), 1, 2000).Draw(t, "payload"),
		}
		b, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := readFrame(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		cut := rapid.IntRange(1, len(b)-1).Draw(t, "cut")
		if _, err := readFrame(bytes.NewReader(b[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes of %d: %v, want io.ErrUnexpectedEOF", cut, len(b), err)
		}
	})
}

func TestFrameEnd(t *testing.T) {
	if _, err := readFrame(strings.NewReader("")); err != io.EOF {
		t.Errorf("got %v, want io.EOF", err)
	}
}

func TestFrameBad(t *testing.T) {
	good, err := frame{kind: kindCall}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte){
		"no kind":       func(b []byte) { b[4] = 0 },
		"unknown kind":  func(b []byte) { b[4] = byte(kindEnd) },
		"flags":         func(b []byte) { b[5] = 1 },
		"long payload":  func(b []byte) { binary.LittleEndian.PutUint32(b, MaxPayload+1) },
		"endless limit": func(b []byte) { b[23] = 0x80 },
	} {
		b := bytes.Clone(good)
		change(b)
		if _, err := readFrame(bytes.NewReader(b)); !errors.Is(err, errFrame) {
			t.Errorf("%s: got %v, want errFrame", name, err)
		}
	}
}

// A header that announces a large payload does not make the reader allocate that memory.
func TestFrameClaims(t *testing.T) {
	b, err := frame{kind: kindCall}.encode()
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(b, MaxPayload)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readFrame(bytes.NewReader(b)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > MaxPayload/4 {
		t.Errorf("%d bytes for a header", n)
	}
}

func FuzzFrame(f *testing.F) {
	for k := kindHello; k < kindEnd; k++ {
		b, err := frame{kind: k, id: 7, method: 1, timeout: 9, payload: []byte("text")}.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := got.encode()
		if err != nil || !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("%x became %x, %v", b, again, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	c, err := NewCodec()
	if err != nil {
		f.Fatal(err)
	}
	b, err := c.Marshal(sample{A: 1, B: []float32{2}, C: map[string]int{"x": 3}, D: &sample{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s sample
		if c.Unmarshal(b, &s) != nil {
			return
		}
		if _, err := c.Marshal(s); err != nil {
			t.Error(err)
		}
	})
}
