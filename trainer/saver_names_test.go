package trainer

import (
	"slices"
	"testing"
)

// The names of tensors in a checkpoint are unique and valid UTF-8, whatever the names of the parameters are.
func TestTensorNames(t *testing.T) {
	params := []Param{{Name: "w"}, {Name: ""}, {Name: "w"}, {Name: "\xff\xfev"}, {Name: ""}, {Name: "b"}}
	want := []string{"w", "1.", "2.w", "3.v", "4.", "b"}
	if got := tensorNames(params); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}
