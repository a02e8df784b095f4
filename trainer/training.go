package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Training is a run with points, at which the programs of all peers decide together: about a score
// on a test set, about the model to keep, and whether to stop. At a point nothing is in flight, and
// all peers have the parameters of the same step. All peers see the same sums and make the same
// decisions, even if peers die or join meanwhile.
//
//	run := trainer.New(group, model, cfg)
//	best, worse := 0, 0
//	for p := range run.Points(ctx, trainer.EveryPass) {
//		lo, hi := p.Part(test.Len())
//		part, err := network.Evaluate(ctx, test, lo, hi)
//		if err != nil {
//			p.Fail(err)
//			continue
//		}
//		score, err := p.Sum(part)
//		if err != nil {
//			continue // this point comes again, among the remaining peers
//		}
//		if score.Correct > best {
//			best, worse = score.Correct, 0
//			p.Keep()
//		} else if worse++; worse == 3 {
//			p.Stop()
//		}
//	}
//	return run.Err()
//
// A peer that joins does not know the earlier points. So at each point the decision of the peer
// that has seen most points is carried out, or of the lowest rank if there are several such peers.
// Run is the short form, without points. A Training is not safe for concurrent use.
type Training struct {
	job   *job
	group *elastic.Group
	model Model
	cfg   Config
	// err is the error with which the training ended; errNotRun before Points.
	err error
}

// Interval is the number of steps between two points of a Training.
type Interval int64

// EveryPass places a point after each pass over the data.
const EveryPass Interval = 0

// errNotRun is the error of a Training before the call of Points.
var errNotRun = errors.New("trainer: the training has not begun: range over Points")

// New returns a training of model on all peers of group. The training begins when the program ranges
// over Points. If an argument is invalid, the loop ends at once and Err returns the error.
func New(group *elastic.Group, model Model, cfg Config) *Training {
	return &Training{group: group, model: model, cfg: cfg, err: errNotRun}
}

// Points trains until the job is finished, and yields a point after every interval, and after the
// last step. All peers must use the same interval. A point whose Sum has failed is yielded again,
// so the loop should go on with continue. A break or return before Point.Stop ends the job at this
// peer with an error. The result of Points can be used once.
func (t *Training) Points(ctx context.Context, every Interval) iter.Seq[*Point] {
	return func(yield func(*Point) bool) {
		if t.err != errNotRun {
			t.err = errors.Join(t.err, errors.New("trainer: Points was called twice: make a new Training"))
			return
		}
		if every < 0 {
			t.err = errors.New("trainer: negative interval of Points: want EveryPass, or a number of steps")
			return
		}
		// A panic of the loop skips the next assignment, so the error is set before.
		t.err = errors.New("trainer: a panic ended the loop of Points")
		t.err = t.run(ctx, func(j *job) {
			j.decisions.every, j.decisions.show = int64(every), yield
			if every == EveryPass {
				j.decisions.every, j.decisions.endsPass = j.plan.perPass, j.plan.endsPass
			}
		})
	}
}

// run creates the job, lets change modify it, and runs it.
func (t *Training) run(ctx context.Context, change func(j *job)) (err error) {
	if t.job, err = newJob(t.group, t.model, t.cfg); err != nil {
		return err
	}
	change(t.job)
	return t.job.run(ctx)
}

// Err returns the error with which the training ended, as Run does; nil after success.
func (t *Training) Err() error { return t.err }

// Status describes the progress of a training, and why it ended.
type Status struct {
	Step, Of int64 // last committed step, and steps of the whole job
	Stopped  bool  // ended by Point.Stop
	Kept     int64 // step of the model that Kept returns; 0 for none
	Err      error // as Training.Err
}

// Status returns the progress of the training.
func (t *Training) Status() Status {
	s := Status{Err: t.err}
	if j := t.job; j != nil {
		s.Step, s.Of, s.Stopped, s.Kept = j.state.committed(), j.plan.last(), j.decisions.stopped, j.decisions.kept
	}
	return s
}

// Kept returns the parameters of the last kept model, equal at every peer that has finished; nil
// if none was kept. The caller owns them.
func (t *Training) Kept() []Param {
	if t.job == nil || t.job.decisions.kept == 0 {
		return nil
	}
	var all []Param
	for i, p := range t.model.Params {
		all = append(all, Param{Name: p.Name, Shape: p.Shape, Data: t.job.decisions.copied[i]})
	}
	return all
}

// Point is the time between two steps, when no call is in progress. It is valid only in its
// iteration of the loop over Training.Points.
type Point struct {
	Step, Of int64 // last committed step, whose parameters the model has; steps of the whole job

	decisions *decisions
	ctx       context.Context
	session   *elastic.Session // nil if this peer is alone
	idle      func()           // ends the busy state
	sums      int              // number of calls of Sum
	broken    error            // error of the session
	failed    error            // error of the program
	stop      bool
	keep      bool
}

// Rank returns the rank of this peer among the peers at the point, from 0, and their number.
func (p *Point) Rank() (rank, ranks int) {
	if p.session == nil {
		return 0, 1
	}
	return p.session.Rank, len(p.session.View.Members)
}

// Part returns this peer's part [lo, hi) of n samples. The parts of all peers are disjoint and
// cover all samples.
func (p *Point) Part(n int) (lo, hi int) {
	rank, ranks := p.Rank()
	return n * rank / ranks, n * (rank + 1) / ranks
}

// Sum adds up the parts of a score over all peers, and returns the same total at every peer.
// Counts are exact; the last bits of a loss depend on the division into parts. All peers call Sum
// in the same order, at most four times at a point. After an error this point comes again among
// the remaining peers, and sums that were already returned stay the same.
func (p *Point) Sum(part Score) (Score, error) {
	if err := errors.Join(p.broken, p.failed); err != nil {
		return Score{}, err
	}
	at := &p.decisions.point
	if p.sums == maxSums {
		p.failed = errSums
		return Score{}, errSums
	}
	// A point that is yielded again has the sums of the first time: Sum returns them without a
	// collective call.
	if p.sums == len(at.sums) {
		total, err := p.sum(part)
		if err != nil {
			p.broken = err
			return Score{}, err
		}
		at.sums = append(slices.Clone(at.sums), total)
	}
	p.sums++
	return at.sums[p.sums-1], nil
}

// sum adds up the parts of a score over all ranks, in rank order.
func (p *Point) sum(part Score) (total Score, err error) {
	if p.session == nil {
		return part, nil
	}
	p.idle() // a peer that waits for others is not busy
	defer func() { p.idle = p.decisions.busy(p.session) }()
	const words = 3
	n := len(p.session.View.Members)
	// Each rank writes its part to its own range of a zeroed vector, so the sum of these vectors has
	// the parts of all ranks. The parts are then added in rank order, so that rounding is the same
	// at all ranks.
	all := make([]int64, n*words)
	putScore(all[p.session.Rank*words:], part)
	if err := collective.AllReduce(p.ctx, p.session.Comm.With(collective.CallOptions{For: "score"}), all, all, collective.Sum[int64]); err != nil {
		return Score{}, fmt.Errorf("share the score after step %d: %w", p.Step, err)
	}
	for w := range slices.Chunk(all, words) {
		s := getScore(w)
		total.Samples, total.Correct, total.Loss = total.Samples+s.Samples, total.Correct+s.Correct, total.Loss+s.Loss
	}
	return total, nil
}

// errSums is returned by the fifth call of Sum at a point.
var errSums = errors.New("a point has at most 4 sums: combine several scores in one Sum")

// Keep keeps a copy of the parameters in memory, in place of an earlier copy. Training.Kept
// returns the copy, also at peers that joined later.
func (p *Point) Keep() { p.keep = true }

// Stop ends the job at this point, at all peers.
func (p *Point) Stop() { p.stop = true }

// Fail ends the job at this peer. The other peers get err as the cause.
func (p *Point) Fail(err error) {
	if p.failed == nil {
		p.failed = err
	}
}
