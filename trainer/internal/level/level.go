// Package level tells rounding from a divergence, where members of a job compute updates that may
// differ in their last bits: kernels of a framework have one version for each kind of processor. Their
// gradients are summed and so are equal; only the updates differ. Members compare digests every Every
// steps, and at the end. A member that differs keeps its parameters, takes those of the others, and
// looks at the difference:
//
//	l.Keep(params)
//	// ... params become those of the others ...
//	reason, large := l.Compare(params, names, step)
//
// A large difference has another cause than rounding.
package level

import (
	"fmt"
	"math"
	"slices"
)

const (
	// Every is the number of steps between two comparisons. Updates drift apart by a few units in the
	// last place a step.
	Every = 100
	// mostRounding is the largest relative difference of a parameter that is taken for rounding.
	mostRounding = 1e-3
)

// Level has what a member knows of its differences. The zero value is ready.
type Level struct {
	own  [][]float32 // parameters of this member that differ, until it has those of the others
	told bool        // a small difference was reported
}

// Keep copies the parameters of this member, which differ from those of the others.
func (l *Level) Keep(params [][]float32) {
	l.own = nil
	for _, v := range params {
		l.own = append(l.own, slices.Clone(v))
	}
}

// Compare compares the parameters of the others after a step with those of Keep, and returns what to
// report: "" without Keep, or after the first small difference. large means that it is no rounding.
// name returns the name of a parameter.
func (l *Level) Compare(params [][]float32, name func(i int) string, step int64) (reason string, large bool) {
	if l.own == nil {
		return "", false
	}
	most, where := 0.0, 0
	for i, own := range l.own {
		if d := relativeDifference(own, params[i]); !(d <= most) {
			most, where = d, i
		}
	}
	l.own = nil
	if most > mostRounding || math.IsNaN(most) {
		return fmt.Sprintf("%s differed by %.2g of its length after step %d; all peers must decide alike; else check the memory of the host",
			name(where), most, step), true
	}
	if l.told {
		return "", false
	}
	l.told = true
	return fmt.Sprintf("its processor rounds updates differently, by %.1g after step %d; it copies every %d steps if they differ",
		most, step, Every), false
}

// relativeDifference returns the length of a-b divided by the length of b; 0 if a and b are equal.
func relativeDifference(a, b []float32) float64 {
	var difference, length float64
	for i, x := range b {
		d := float64(a[i]) - float64(x)
		difference, length = difference+d*d, length+float64(x)*float64(x)
	}
	if difference == 0 {
		return 0
	}
	return math.Sqrt(difference / length)
}
