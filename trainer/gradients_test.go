package trainer

import (
	"math"
	"strings"
	"testing"
)

func TestGradientsDefaults(t *testing.T) {
	if got, err := (Gradients{}).withDefaults(); err != nil || got != (Gradients{BucketBytes: DefaultBucketBytes, Compression: "none"}) {
		t.Errorf("%+v, %v", got, err)
	}
	want := Gradients{Clip: 2, Delay: true, BucketBytes: 8, Compression: "topk:0.1"}
	given := want
	given.Compression = "topk:1e-1" // another spelling
	if got, err := given.withDefaults(); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	want = Gradients{BucketBytes: 8, Compression: "none", Exact: true, Audit: 1}
	if got, err := want.withDefaults(); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// The error names each field with an invalid value, as in Gradients.Clip.
func TestBadGradients(t *testing.T) {
	for want, g := range map[string]Gradients{
		"Gradients.Clip is -1":                                   {Clip: -1},
		"Gradients.Clip is NaN":                                  {Clip: math.NaN()},
		"Gradients.BucketBytes is -1":                            {BucketBytes: -1},
		"Gradients.Audit is 1.5":                                 {Audit: 1.5, Exact: true},
		"Gradients.Audit is NaN":                                 {Audit: math.NaN(), Exact: true},
		"Gradients.Audit is 0.5 without Exact":                   {Audit: 0.5},
		`Gradients has Exact and Compression "int8"`:             {Exact: true, Compression: "int8"},
		"Gradients.Compression: compression \"gzip\": want none": {Compression: "gzip"},
		"Gradients.Compression: compression topk: a fraction":    {Compression: "topk:2"},
	} {
		if _, err := g.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", g, err, want)
		}
	}
}
