package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// scoreWords is the length of a score on the wire, in words: samples, correct, bits of the loss, 1
// for a failure, 1 if the session of the rank is stale (there is a later view).
const scoreWords = 5

// evaluation scores the model at the end of a job.
type evaluation struct {
	part func(ctx context.Context, part, parts int) (Score, error) // Config.Evaluate; nil for no score
}

// alone scores the whole test set, at a peer that gets no further session.
func (e evaluation) alone(ctx context.Context, group *elastic.Group) (*Score, error) {
	if e.part == nil {
		return nil, nil
	}
	defer group.Busy("evaluating")()
	all, err := e.part(ctx, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	return &all, nil
}

// together scores one part of the test set at every rank, and adds the parts up in rank order, so
// that all ranks get the same score. A failure at one rank is an error at all ranks.
//
// Success proves that all ranks have completed the last commit record, and so have reported their
// parts of the last step. For this proof all ranks communicate even if there is nothing to
// evaluate. If a rank dies while that commit record is reduced, the others reduce another commit
// record and report the dead rank's part.
func (e evaluation) together(ctx context.Context, s *elastic.Session) (*Score, error) {
	if e.part == nil {
		if err := collective.Barrier(ctx, s.Comm.With(collective.CallOptions{For: "end"})); err != nil {
			return nil, fmt.Errorf("end the job: %w", err)
		}
		return nil, nil
	}
	n := len(s.View.Members)
	idle := s.Busy("evaluating")
	part, failed := e.part(ctx, s.Rank, n)
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
		// This peer's own failure is the cause; the error of the reduction would only name the
		// consequence.
		return nil, fmt.Errorf("evaluate: %w", failed)
	}
	if err != nil {
		return nil, fmt.Errorf("share the score: %w", err)
	}
	score, stale, err := addScores(words, peerName(s))
	if err == nil && stale {
		err = errNextSession // a newcomer was admitted meanwhile, and has to finish too
	}
	return score, err
}

// addScores adds up the parts in a reduced vector. stale is true if the session of some rank is
// stale, because there is a later view.
func addScores(words []int64, name func(rank int) string) (score *Score, stale bool, err error) {
	var total Score
	for rank := 0; len(words) > 0; rank, words = rank+1, words[scoreWords:] {
		// Words 3 and 4 are flags: the part of the rank failed; the session of the rank is stale.
		if words[3] != 0 {
			return nil, false, fmt.Errorf("evaluate: %s failed", name(rank))
		}
		total.Samples += int(words[0])
		total.Correct += int(words[1])
		total.Loss += math.Float64frombits(uint64(words[2]))
		stale = stale || words[4] != 0
	}
	if total.Samples < 1 {
		return nil, false, errors.New("evaluate: no part has samples: check Config.Evaluate")
	}
	return &total, stale, nil
}
