package run

import "testing"

// A plan is one line, however many peers it has.
func TestFormatScalePlan(t *testing.T) {
	for want, p := range map[string]scalePlan{
		"starting peers 2, 3":                           {start: []int{2, 3}},
		"asking peer 1 to leave":                        {leave: []int{1}},
		"nothing to do":                                 {},
		"starting peers 0, 1, 2, 3, 4, 5, 6, 7, 3 more": {start: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}
