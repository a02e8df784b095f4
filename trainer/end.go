package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Words of a score on the wire: samples, correct, bits of the loss, 1 for a failure,
// 1 if the rank knows of a later view.
const scoreWords = 5

// end brings a job to its end in a session all of whose members have committed the last
// step. What fails with the session is done again in the next one.
func (r *runner) end(ctx context.Context, s *elastic.Session) error {
	// A tail without a step tells all that all have committed the last one. Until then
	// nobody goes, because somebody may need a copy of the state: also one who has just
	// been let in, in a later view.
	slots, err := r.tail(ctx, s, slot{})
	if err != nil {
		return err
	}
	if anyStale(slots) {
		return errNextSession
	}
	return r.finishAfter(s.View.Epoch, func() (*Score, error) { return r.evaluate(ctx, s) })
}

// finishAfter applies what is outstanding, and finishes the job if the evaluation of that succeeds.
// Otherwise the state is again what it was, as others may need a copy of it.
func (r *runner) finishAfter(epoch uint64, evaluate func() (*Score, error)) error {
	finished := false
	if r.cfg.Delay {
		apply, err := r.state.rule(r.state.committed())
		if err != nil {
			return err
		}
		r.state.pipeline.reserve()
		r.state.pipeline.advance(r.state.grads.applied.views, apply)
		defer func() {
			if !finished {
				r.state.pipeline.takeBack()
			}
		}()
	}
	score, err := evaluate()
	if err != nil {
		return err
	}
	finished = true
	r.finish(epoch, score)
	return nil
}

// endAlone brings a job to its end at a peer that has committed the last step and gets
// no further session: that is no error of the job. The step is not reported unless it was
// stable before: if the others were cut off, and not killed, they may have lacked this
// peer's part of the tail, and commit the step with other shares.
func (r *runner) endAlone(ctx context.Context) error {
	if err := r.decisions.decideAlone(ctx, r.state.committed()); err != nil {
		return err
	}
	return r.finishAfter(r.state.last.Epoch, func() (*Score, error) {
		if r.cfg.Evaluate == nil {
			return nil, nil
		}
		defer r.group.Busy("evaluating")()
		score, err := r.cfg.Evaluate(ctx, 0, 1)
		if err != nil {
			return nil, fmt.Errorf("evaluate: %w", err)
		}
		return &score, nil
	})
}

// finish reports the end of the job.
func (r *runner) finish(epoch uint64, score *Score) {
	result := Result{Steps: r.state.committed(), Peers: r.state.last.Peers, Score: score, SHA256: sha256Of(r.layout.params)}
	r.group.Emit(epoch, r.state.committed(), result.done())
	if r.cfg.Done != nil {
		r.cfg.Done(result)
	}
}

// evaluate lets every rank score its part of the test set and adds the parts up, in
// rank order, so that all get the same. A rank that fails tells the others.
//
// Whoever comes out of it knows that all have come out of the tail before, and so have
// reported their parts of the last step. If one dies in that tail the others go through
// another one, and report what it contributed. That takes a call of all also where there
// is nothing to evaluate.
func (r *runner) evaluate(ctx context.Context, s *elastic.Session) (*Score, error) {
	if r.cfg.Evaluate == nil {
		if err := collective.Barrier(ctx, s.Comm.With(collective.CallOptions{For: "end"})); err != nil {
			return nil, fmt.Errorf("end the job: %w", err)
		}
		return nil, nil
	}
	n := len(s.View.Members)
	idle := s.Busy("evaluating")
	part, failed := r.cfg.Evaluate(ctx, s.Rank, n)
	idle()
	words := make([]int64, n*scoreWords)
	mine := words[s.Rank*scoreWords:]
	mine[0], mine[1], mine[2] = int64(part.Samples), int64(part.Correct), int64(math.Float64bits(part.Loss))
	if failed != nil {
		mine[3] = 1
	}
	if s.Stale() {
		mine[4] = 1
	}
	err := collective.AllReduce(ctx, s.Comm.With(collective.CallOptions{For: "score"}), words, words, collective.Sum[int64])
	if failed != nil {
		return nil, fmt.Errorf("evaluate: %w", failed)
	}
	if err != nil {
		return nil, fmt.Errorf("share the score: %w", err)
	}
	score, stale, err := addScores(words, peerName(s))
	if err == nil && stale {
		err = errNextSession // somebody was let in meanwhile, who has to come to the end, too
	}
	return score, err
}

// addScores adds up the parts that a reduced vector holds, and tells whether a rank
// knows of a later view.
func addScores(words []int64, name func(rank int) string) (score *Score, stale bool, err error) {
	var total Score
	for rank := 0; len(words) > 0; rank, words = rank+1, words[scoreWords:] {
		if words[3] != 0 {
			return nil, false, fmt.Errorf("evaluate: %s failed", name(rank))
		}
		total.Samples += int(words[0])
		total.Correct += int(words[1])
		total.Loss += math.Float64frombits(uint64(words[2]))
		stale = stale || words[4] != 0
	}
	if total.Samples < 1 {
		return nil, false, errors.New("evaluate: the parts have no samples")
	}
	return &total, stale, nil
}
