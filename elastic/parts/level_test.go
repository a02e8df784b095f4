package parts

import (
	"slices"
	"testing"
)

// A member takes its staged values only if the members have committed that attempt, and drops all values
// of another history.
func TestLevel(t *testing.T) {
	for name, c := range map[string]struct {
		now  version
		want []int8
	}{
		"nothing was committed": {version{4, 44}, []int8{1}},
		"missed commit":         {version{5, 55}, []int8{2}},
		"another attempt":       {version{5, 66}, nil},
		"another history":       {version{4, 66}, nil},
		"a later step":          {version{6, 55}, nil},
	} {
		p := New[int8]([]int{1}, Options{})
		p.pieces[0] = piece[int8]{held: true, touched: true, value: []int8{1}, next: []int8{2}}
		p.committed, p.staged = version{4, 44}, version{5, 55}
		p.tag[tagCommits], p.tag[tagAttempt] = c.now.commits, c.now.attempt
		p.level()
		if got := p.Value(0); !slices.Equal(got, c.want) || p.committed != c.now || p.pieces[0].touched {
			t.Errorf("%s: value %v of %v, want %v", name, got, p.committed, c.want)
		}
	}
}
