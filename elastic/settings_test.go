package elastic

import "testing"

// The first setting that differs is named, with both values.
func TestDiffer(t *testing.T) {
	a := []Setting{{Name: "batch", Value: "4"}, {Name: "seed", Value: "1"}}
	if why := differ(a, []Setting{a[1], a[0]}); why != "" {
		t.Error(why)
	}
	for want, other := range map[string][]Setting{
		"batch is 4 in the job and 5 at the peer":        {{Name: "batch", Value: "5"}, {Name: "seed", Value: "1"}},
		"seed is 1 in the job, and not set at the peer":  {{Name: "batch", Value: "4"}},
		"extra is 9 at the peer, and not set in the job": {{Name: "batch", Value: "4"}, {Name: "seed", Value: "1"}, {Name: "extra", Value: "9"}},
	} {
		if got := differ(a, other); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The message names the member outside the majority, with its value and the value of the others,
// both by Setting.Text if there is one.
func TestDisagreement(t *testing.T) {
	rate := func(v string) []Setting { return []Setting{{Name: "--lr", Value: v}, {Name: "seed", Value: "1"}} }
	data := func(hash, dir string) []Setting { return []Setting{{Name: "--data", Value: hash, Text: dir}} }
	for name, c := range map[string]struct {
		all  [][]Setting
		want string
	}{
		"equal":        {[][]Setting{rate("1"), rate("1"), {rate("1")[1], rate("1")[0]}}, ""},
		"the last":     {[][]Setting{rate("0.1"), rate("0.1"), rate("0.2")}, "peer 2 has --lr 0.2, the others have 0.1"},
		"the first":    {[][]Setting{rate("0.1"), rate("0.2"), rate("0.2")}, "peer 0 has --lr 0.1, the others have 0.2"},
		"of two":       {[][]Setting{rate("0.1"), rate("0.2")}, "peer 1 has --lr 0.2, peer 0 has 0.1"},
		"all":          {[][]Setting{rate("1"), rate("2"), rate("3")}, "peer 1 has --lr 2 (and 1 more differ), the others have 1"},
		"missing":      {[][]Setting{rate("1"), rate("1"), nil}, "peer 2 has --lr not set, the others have 1"},
		"extra":        {[][]Setting{nil, rate("1"), nil}, "peer 1 has --lr 1, the others have not set"},
		"another text": {[][]Setting{data("a", "x"), data("a", "y"), data("b", "z")}, "peer 2 has --data z, the others have x"},
		"the same":     {[][]Setting{data("a", "x"), data("a", "x"), data("b", "x")}, "peer 2 has --data x (b), the others have x (a)"},
	} {
		want := c.want
		if want != "" {
			want += ": start all peers with the same flags and data"
		}
		if got := disagreement(c.all, []string{"peer 0", "peer 1", "peer 2"}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// The hash depends neither on the order of the settings nor on their texts.
func TestSettingsHash(t *testing.T) {
	a, b := Setting{Name: "a", Value: "1"}, Setting{Name: "b", Value: "2"}
	h := settingsHash([]Setting{a, b})
	if h == 0 || h != settingsHash([]Setting{b, a}) || h != settingsHash([]Setting{a, {Name: "b", Value: "2", Text: "two"}}) {
		t.Error("equal settings have different hashes")
	}
	for _, other := range [][]Setting{nil, {a}, {a, {Name: "b", Value: "1"}}, {a, {Name: "c", Value: "2"}}} {
		if settingsHash(other) == h {
			t.Errorf("%v has the same hash", other)
		}
	}
}
