package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// Each sample counts exactly once in each pass, although peers join, leave and die.
func TestLedger(t *testing.T) {
	const peers, passes = 4, 3
	rounds, length := pick(4, 50), pick(600, 3000)
	s := spec{Samples: length / passes * globalBatch, Passes: passes, Pace: stepPace(10*time.Millisecond, peers)}
	s.Samples -= 3*microbatch + 1 // so that the last step of a pass is short, and so is the last microbatch of this step
	c := newChurn(t, start(t, s, peers), peers)
	for range rounds {
		c.round(t)
	}
	at := c.step()
	c.end(t)
	if n := recomputed(c.events()); n != 0 {
		t.Errorf("survivors computed %d microbatches twice", n)
	}
	t.Logf("%d passes over %d samples: each counted once in each, with %d kills, %d leaves, %d joins (%d of other elruns) until step %d of %d",
		passes, s.Samples, c.kills, c.leaves, c.joins, c.others, at, s.steps())
}

// part identifies the contribution of a peer to a step.
type part struct {
	peer string
	step int64
}

// checkLedger collects the contributions in the log. It returns an error unless every sample counts
// exactly once in every pass. Several peers may report the same contribution of a dead peer.
// Contributions to the steps in lacking may be missing.
func checkLedger(s spec, events []event.Event, lacking ...steps) error {
	parts := make(map[part][][2]int)
	add := func(p part, ranges [][2]int) error {
		if old, ok := parts[p]; ok && !slices.Equal(old, ranges) {
			return fmt.Errorf("peer %s contributed %v to step %d, and as others say %v", p.peer, old, p.step, ranges)
		}
		parts[p] = ranges
		return nil
	}
	for _, e := range events {
		body, ok := e.Body.(event.Step)
		if !ok {
			continue
		}
		var err error
		if body.ShareSamples > 0 || len(body.Microbatches) > 0 {
			err = add(part{e.Peer, e.Step}, body.Microbatches)
		}
		for _, c := range body.OfLost {
			err = cmp.Or(err, add(part{c.Peer, c.Step}, c.Microbatches))
		}
		if err != nil {
			return err
		}
	}
	return s.checkParts(parts, lacking)
}

// steps is a range of steps, from first to last.
type steps struct{ first, last int64 }

// has reports whether the range contains step.
func (s steps) has(step int64) bool { return s.first <= step && step <= s.last }

// checkParts checks that the parts make up every step of the job.
func (s spec) checkParts(parts map[part][][2]int, lacking []steps) error {
	all := make(map[int64][][2]int)
	for p, ranges := range parts {
		all[p.step] = append(all[p.step], ranges...)
	}
	batch := s.batch()
	perPass := int64((s.Samples + batch - 1) / batch)
	for step := int64(1); step <= s.steps(); step++ {
		samples := min(batch, s.Samples-int((step-1)%perPass)*batch)
		blind := slices.ContainsFunc(lacking, func(l steps) bool { return l.has(step) })
		if err := checkStep(all[step], (samples+microbatch-1)/microbatch, blind); err != nil {
			return fmt.Errorf("step %d: microbatches %v: %w", step, all[step], err)
		}
	}
	if n := int64(len(all)); n > s.steps() {
		return fmt.Errorf("%d steps in the log, want %d", n, s.steps())
	}
	return nil
}

// checkStep checks that the ranges make up [0, n). If mayLack is set, it only checks that no number occurs twice.
func checkStep(ranges [][2]int, n int, mayLack bool) error {
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	end := 0
	for _, r := range append(ranges, [2]int{n, n}) {
		switch {
		case r[0] < end:
			return fmt.Errorf("%d counts twice", r[0])
		case r[0] > end && !mayLack:
			return fmt.Errorf("%d is missing", end)
		}
		end = r[1]
	}
	return nil
}
