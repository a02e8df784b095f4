package collective

import (
	"bytes"
	"reflect"
	"testing"
)

// tree is a recursive type with all kinds of parts.
type tree struct {
	Name     string
	Weights  []float32
	Counts   map[string]int64
	Next     *tree
	Children []tree
}

// Any bytes decode to a value or an error, and what decodes is the same after another round.
func FuzzDecodeValue(f *testing.F) {
	whole, err := encodeValue(&tree{Name: "a", Weights: []float32{1}, Counts: map[string]int64{"x": 1}, Children: []tree{{Name: "b"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(bytes.Clone(whole), 0))
	f.Add([]byte{})
	f.Add([]byte{0xf8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeValue[tree](b)
		if err != nil {
			return
		}
		again, err := encodeValue(&v)
		if err != nil {
			t.Fatal(err)
		}
		w, err := decodeValue[tree](again)
		if third, _ := encodeValue(&w); err != nil || len(third) != len(again) {
			t.Fatalf("%+v became %+v, %v", v, w, err)
		}
	})
}

// Bytes after a value, and a part of a value, are errors.
func TestDecodeValue(t *testing.T) {
	want := tree{Name: "a", Next: &tree{Name: "b"}}
	b, err := encodeValue(&want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeValue[tree](b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range b {
		if v, err := decodeValue[tree](b[:n]); err == nil {
			t.Errorf("%d of %d bytes: %+v", n, len(b), v)
		}
	}
	if v, err := decodeValue[tree](append(b, b...)); err == nil {
		t.Errorf("two values: %+v", v)
	}
}
