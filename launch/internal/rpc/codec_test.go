package rpc

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type sample struct {
	A int64
	B []float32
	C map[string]int
	D *sample
	T time.Time
}

func TestCodec(t *testing.T) {
	c, err := NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := sample{A: rapid.Int64().Draw(t, "a"), B: rapid.SliceOf(rapid.Float32()).Draw(t, "b"),
			C: rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "c"), T: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "t"), 123456789).UTC()}
		want.D = &sample{A: want.A, T: want.T}
		b, err := c.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got sample
		if err := c.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// Floats keep their bits, NaNs included.
func TestCodecFloats(t *testing.T) {
	c, err := NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	for _, bits := range []uint32{0, 1 << 31, 1, 0x7f800000, 0xff800000, 0x3f800001} {
		b, err := c.Marshal([]float32{math.Float32frombits(bits)})
		var got []float32
		if err == nil {
			err = c.Unmarshal(b, &got)
		}
		if err != nil || len(got) != 1 || math.Float32bits(got[0]) != bits {
			t.Errorf("%#x became %v, %v", bits, got, err)
		}
	}
}

func TestCheckType(t *testing.T) {
	type hidden struct{ a int }
	type list struct{ Next *list }
	for _, c := range []struct {
		value any
		want  string // part of the error; "" for none
	}{
		{1, ""}, {"text", ""}, {struct{}{}, ""}, {sample{}, ""}, {list{}, ""}, {map[string][]sample{}, ""}, {time.Time{}, ""}, {[]byte{}, ""},
		{make(chan int), "chan int cannot be sent"},
		{struct{ F func() }{}, "field F"},
		{struct{ C []complex64 }{}, "complex64"},
		{map[string]chan int{}, "chan int"},
		{map[[1]chan int]int{}, "chan int"},
		{hidden{1}, "no exported field"},
		{[]any{}, "its type would be lost"},
	} {
		err := CheckType(reflect.TypeOf(c.value))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: got %v, want %q in it", c.value, err, c.want)
		}
	}
}
