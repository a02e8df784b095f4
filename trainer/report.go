package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/event"
)

// report describes the step that was just applied.
func (r *runner) report(s *elastic.Session, p stepPlan, slots []slot) *StepReport {
	samples, loss := totals(slots)
	rep := &StepReport{
		Epoch: s.View.Epoch, Step: p.step, Of: r.plan.steps, Peers: len(slots),
		ShareSamples: r.open.samples, Samples: int(samples), Recomputed: r.open.recomputed,
		Loss: loss / float64(samples), Digest: fmt.Sprintf("%016x", r.digest), Compute: r.open.compute,
	}
	if r.open.first < r.open.end {
		rep.Microbatches = [][2]int{{r.open.first, r.open.end}}
	}
	return rep
}

// reportStable reports the step that has just become stable, if there is one.
func (r *runner) reportStable() {
	rep := r.unstable
	if rep == nil {
		return
	}
	r.unstable = nil
	ranges := rep.Microbatches
	if ranges == nil {
		ranges = [][2]int{} // the log has an empty list, not null
	}
	r.group.Emit(rep.Epoch, rep.Step, event.Step{
		Microbatches: ranges, ShareSamples: rep.ShareSamples, Samples: rep.Samples, Loss: rep.Loss,
		Digest: rep.Digest, Recomputed: rep.Recomputed, Of: rep.Of,
		ComputeMS: milliseconds(rep.Compute), CommMS: milliseconds(rep.Comm), StepMS: milliseconds(rep.Total),
	})
	if r.cfg.OnStep != nil {
		r.cfg.OnStep(*rep)
	}
}

// milliseconds is the unit of times in the event log.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Words of a score on the wire: samples, correct, bits of the loss, 1 for a failure.
const scoreWords = 4

// evaluate lets every rank score its part of the test set and adds the parts up, in
// rank order, so that all get the same. A rank that fails tells the others.
func (r *runner) evaluate(ctx context.Context, s *elastic.Session) (*Score, error) {
	if r.cfg.Evaluate == nil {
		return nil, nil
	}
	n := len(s.View.Members)
	part, failed := r.cfg.Evaluate(ctx, s.Rank, n)
	words := make([]int64, n*scoreWords)
	mine := words[s.Rank*scoreWords:]
	mine[0], mine[1], mine[2] = int64(part.Samples), int64(part.Correct), int64(math.Float64bits(part.Loss))
	if failed != nil {
		mine[3] = 1
	}
	err := collective.AllReduce(ctx, s.Comm, words, words, collective.Sum[int64])
	if failed != nil {
		return nil, fmt.Errorf("evaluate: %w", failed)
	}
	if err != nil {
		return nil, fmt.Errorf("share the score: %w", err)
	}
	return addScores(words, peerName(s))
}

// addScores adds up the parts that a reduced vector holds.
func addScores(words []int64, name func(rank int) string) (*Score, error) {
	var total Score
	for rank := 0; len(words) > 0; rank, words = rank+1, words[scoreWords:] {
		if words[3] != 0 {
			return nil, fmt.Errorf("evaluate: %s failed", name(rank))
		}
		total.Samples += int(words[0])
		total.Correct += int(words[1])
		total.Loss += math.Float64frombits(uint64(words[2]))
	}
	if total.Samples < 1 {
		return nil, errors.New("evaluate: the parts have no samples")
	}
	return &total, nil
}
