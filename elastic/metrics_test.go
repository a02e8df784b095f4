package elastic

import (
	"bytes"
	"math"
	"testing"
)

func FuzzMetrics(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeMetrics([]metric{{"loss", 0.5, ReportMean}, {"samples", 64, ReportSum}}))
	f.Add(encodeMetrics([]metric{{"a", 1, ReportMean}, {"a", 1, ReportSum}}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeMetrics(b)
		if err != nil {
			return
		}
		if again := encodeMetrics(all); len(again) > maxMetricBytes || len(all) > maxMetrics {
			t.Errorf("%d metrics of %d bytes", len(all), len(again))
		} else if back, err := decodeMetrics(again); err != nil || !bytes.Equal(encodeMetrics(back), again) {
			t.Errorf("%v and %v (%v)", all, back, err)
		}
		if _, err := combineMetrics([][]metric{all, all}); err != nil {
			t.Error(err)
		}
	})
}

// The mean is over the members that have reported a value. No sum is infinite.
func TestCombineMetrics(t *testing.T) {
	got, err := combineMetrics([][]metric{
		{{"loss", 1, ReportMean}, {"n", 3, ReportSum}, {"big", math.MaxFloat64, ReportSum}},
		{},
		{{"n", 4, ReportSum}, {"loss", 2, ReportMean}, {"big", math.MaxFloat64, ReportSum}, {"one", 5, ReportMean}},
	})
	want := map[string]float64{"loss": 1.5, "n": 7, "big": math.MaxFloat64, "one": 5}
	for name, x := range want {
		if err != nil || len(got) != len(want) || got[name] != x {
			t.Fatalf("got %v (%v), want %v", got, err, want)
		}
	}
	if _, err := combineMetrics([][]metric{{{"n", 3, ReportSum}}, {{"n", 3, ReportMean}}}); err == nil {
		t.Error("a name with two kinds is accepted")
	}
}
