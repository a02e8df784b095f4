package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer"
)

// evaluations answers the program at the points of a training. It lives as long as the training: a
// point whose collective calls fail comes again, and the program still waits for the answer.
type evaluations struct {
	link  *link
	step  int64  // step of the point that the program has been told of
	sums  int    // sums of that point that the program has got
	asked *frame // the question that is not answered yet; nil if there is none
	// there is set if this peer is one of those that have completed the last set, and complete is the
	// number of these; 0 before the first set.
	there    bool
	complete float64
}

// Bits of a GOON.
const (
	goOnStop = 1 << iota
	goOnKeep
)

// pointNews is what the program learns of a point.
type pointNews struct {
	Step, Of    int64
	Rank, Ranks int
}

// serve answers the program at a point until it goes on, or until a collective call fails.
func (e *evaluations) serve(ctx context.Context, at *trainer.Point) error {
	if e.step != at.Step {
		*e = evaluations{link: e.link, step: at.Step}
		news := pointNews{Step: at.Step, Of: at.Of}
		news.Rank, news.Ranks = at.Rank()
		text, err := json.Marshal(news)
		if err != nil {
			return err
		}
		if err := e.link.send(frame{kind: kindPoint, a: at.Step, payload: text}); err != nil {
			return err
		}
	}
	// The point remembers the sums that the program has.
	for range e.sums {
		if _, err := at.Add(0); err != nil {
			return nil // it comes again
		}
	}
	for {
		if e.asked == nil {
			f, err := e.link.receive(ctx, "POINT", kindSum, kindPart, kindGoOn)
			if err != nil {
				return err
			}
			e.asked = &f
		}
		switch f := *e.asked; f.kind {
		case kindGoOn:
			e.asked = nil
			if f.a&goOnStop != 0 {
				at.Stop()
			}
			if f.a&goOnKeep != 0 {
				at.Keep()
			}
			return nil
		case kindSum:
			if done, err := e.sum(at, f); !done {
				return err
			}
		default:
			if done, err := e.part(at, f); !done {
				return err
			}
		}
		e.asked = nil
	}
}

// sum answers SUM, with a 1 if the part of a lost peer is not in the sums. It returns false without an
// error if the point comes again.
func (e *evaluations) sum(at *trainer.Point, f frame) (bool, error) {
	numbers := kernel.Elements[float64](f.payload)
	const most = trainer.MostNumbers - 1
	if n := len(numbers); n < 1 || n > most {
		return false, fmt.Errorf("a sum of %d numbers, want 1 to %d in one call", n, most)
	}
	counted := 0.0
	if e.there {
		counted = 1
	}
	all, err := at.Add(slices.Concat(numbers, []float64{counted})...)
	if err != nil {
		return false, nil
	}
	e.sums++
	answer := frame{kind: kindSum, payload: kernel.Bytes(all[:len(numbers)])}
	// A peer that has died after the set was complete has taken its part of the sum along.
	if all[len(numbers)] < e.complete {
		answer.a = 1
	}
	return true, e.link.send(answer)
}

// mostRanges bounds the ranges of a set that a peer has computed. Each death during an evaluation
// adds at most one.
const mostRanges = 64

// part answers PART: which samples of a set of f.a the program has to compute besides those that it
// has computed. All peers get disjoint parts. When all samples are computed by peers that are there,
// the answer is empty. It returns false without an error if the point comes again.
func (e *evaluations) part(at *trainer.Point, f frame) (bool, error) {
	if !at.Known() { // else the set was complete before this peer came
		mine := kernel.Elements[int64](f.payload)
		if len(mine) > 2*mostRanges {
			return false, fmt.Errorf("an evaluation in more than %d ranges: too many peers were lost during it", mostRanges)
		}
		words := make([]int64, 1+2*mostRanges)
		words[0] = int64(len(mine))
		copy(words[1:], mine)
		all, err := at.Gather(words)
		if err != nil {
			return false, nil
		}
		var done [][2]int64
		for _, w := range all {
			for i := range min(max(0, w[0]/2), mostRanges) {
				done = append(done, [2]int64{w[1+2*i], w[2+2*i]})
			}
		}
		rank, ranks := at.Rank()
		missing := gaps(done, f.a)
		if len(missing) > 0 {
			todo := share(missing, int64(rank), int64(ranks))
			return true, e.link.send(frame{kind: kindPart, a: 1, payload: kernel.Bytes(todo)})
		}
		e.there = true
	}
	// A sum records that the set is complete, for peers that come later, and how many have completed it.
	all, err := at.Add(1)
	if err != nil {
		return false, nil
	}
	e.sums, e.complete = e.sums+1, all[0]
	return true, e.link.send(frame{kind: kindPart})
}

// gaps returns the parts of [0, n) that no range covers, as [first, end), in ascending order.
func gaps(ranges [][2]int64, n int64) (missing [][2]int64) {
	slices.SortFunc(ranges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	next := int64(0)
	for _, r := range append(ranges, [2]int64{n, n}) {
		if first := min(r[0], n); first > next {
			missing = append(missing, [2]int64{next, first})
		}
		next = max(next, r[1])
	}
	return missing
}

// share returns the part of the elements of ascending ranges that belongs to a rank, as pairs of first
// and end.
func share(ranges [][2]int64, rank, ranks int64) (part []int64) {
	total := int64(0)
	for _, r := range ranges {
		total += r[1] - r[0]
	}
	first, end := total*rank/ranks, total*(rank+1)/ranks
	at := int64(0)
	for _, r := range ranges {
		lo, hi := max(first, at), min(end, at+r[1]-r[0])
		if lo < hi {
			part = append(part, r[0]+lo-at, r[0]+hi-at)
		}
		at += r[1] - r[0]
	}
	return part
}
