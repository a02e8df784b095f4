package launch

import (
	"fmt"
	"slices"
	"strings"
)

// scalePlan says which local peers are started, and which are asked to leave.
type scalePlan struct{ start, leave []int }

// planScale brings the number of running local peers to n: new ones take the lowest
// free indices, and the highest ones leave. Of the running, some (leaving) have been
// asked to leave already. It is pure.
func planScale(running, leaving []int, n int) (scalePlan, error) {
	if n < 1 || n > maxPeers {
		return scalePlan{}, fmt.Errorf("%d peers: want 1 to %d", n, maxPeers)
	}
	var stay []int
	for _, i := range running {
		if !slices.Contains(leaving, i) {
			stay = append(stay, i)
		}
	}
	slices.Sort(stay)
	var p scalePlan
	for i := 0; len(stay)+len(p.start) < n; i++ {
		if !slices.Contains(running, i) {
			p.start = append(p.start, i)
		}
	}
	for len(stay) > n {
		last := len(stay) - 1
		p.leave = append(p.leave, stay[last])
		stay = stay[:last]
	}
	return p, nil
}

// String says what happens, as in "starting peers 2, 3".
func (p scalePlan) String() string {
	switch {
	case len(p.start) > 0:
		return "starting " + listPeers(p.start)
	case len(p.leave) > 0:
		return "asking " + listPeers(p.leave) + " to leave"
	}
	return "nothing to do"
}

// listPeers words local indices.
func listPeers(indices []int) string {
	const shown = 8
	if len(indices) == 1 {
		return fmt.Sprintf("peer %d", indices[0])
	}
	var words []string
	for _, i := range indices[:min(shown, len(indices))] {
		words = append(words, fmt.Sprint(i))
	}
	if n := len(indices) - shown; n > 0 {
		words = append(words, fmt.Sprintf("%d more", n))
	}
	return "peers " + strings.Join(words, ", ")
}
