package compress_test

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/compress"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]string{
		"": "none", "none": "none", "fp16": "fp16", "bf16": "bf16", "int8": "int8",
		"topk": "topk:0.01", "topk:0.010": "topk:0.01", "topk:1e-3": "topk:0.001", "topk:0.5": "topk:0.5",
		"topk:0.0156:2bit": "topk:0.0156:2bit", "topk:1e-2:2bit": "topk:0.01:2bit",
	} {
		c, err := compress.Parse(name)
		if err != nil || compress.Name(c) != want {
			t.Errorf("%q: %s, error %v; want %s", name, compress.Name(c), err, want)
		}
	}
	for name, word := range map[string]string{
		"zip": "want none", "int8:4": "want none", "none:1": "want none", "topk:": "fraction", "topk:x": "fraction",
		"topk:0": "fraction", "topk:-1": "fraction", "topk:0.51": "fraction", "topk:NaN": "fraction", "topk:Inf": "fraction",
		"topk:2bit": "fraction", "topk::2bit": "fraction", "topk:0.6:2bit": "fraction", "topk:0.1:": "want 2bit", "topk:0.1:1bit": "want 2bit",
		"topk:0.1:2bit:2bit": "want 2bit",
	} {
		if _, err := compress.Parse(name); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: error %v, want %q in it", name, err, word)
		}
	}
}

// FuzzParse checks that every valid name has a canonical name, which is valid too.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "fp16", "topk:0.25", "topk:1e-300", "topk:0x1p-4", "topk:1_0", "topk:0.25:2bit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := compress.Parse(s)
		if err != nil {
			return
		}
		again, err := compress.Parse(compress.Name(c))
		if err != nil || again != c {
			t.Errorf("%q is %q, which is %v, error %v", s, compress.Name(c), again, err)
		}
	})
}
