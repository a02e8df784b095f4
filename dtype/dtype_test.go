package dtype

import (
	"fmt"
	"testing"
)

// Types are numbered from 1 in wire order, and ParseType is the inverse of String.
func TestTypes(t *testing.T) {
	for i, ty := range Types() {
		if int(ty) != i+1 {
			t.Errorf("%v has wire value %d, want %d", ty, ty, i+1)
		}
		if got, err := ParseType(ty.String()); got != ty || err != nil {
			t.Errorf("ParseType(%q) is %v, %v", ty.String(), got, err)
		}
	}
	if ty, err := ParseType("float8"); err == nil {
		t.Errorf("ParseType of an unknown name gives %v", ty)
	}
	if s := Type(77).String(); s != "type(77)" {
		t.Errorf("type 77 is called %q", s)
	}
}

func ExampleParseType() {
	t, err := ParseType("bfloat16")
	fmt.Println(t == BF16, err)
	_, err = ParseType("float8")
	fmt.Println(err)
	// Output:
	// true <nil>
	// dtype: unknown element type "float8" (one of [int8 int32 int64 uint8 uint32 uint64 float32 float64 float16 bfloat16])
}
