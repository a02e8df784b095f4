package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

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
	begun     time.Time        // begin of the point, or end of the last sum
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
// and Add in the same order, at most eight times at a point. After an error this point comes again
// among the remaining peers, and sums that were already returned stay the same.
func (p *Point) Sum(part Score) (Score, error) {
	known := p.Known()
	all, err := p.remembered(encodeScore(part), func(parts [][totalWords]int64) [totalWords]int64 {
		var sum Score
		for _, w := range parts {
			s := decodeScore(w)
			sum.Samples, sum.Correct, sum.Loss = sum.Samples+s.Samples, sum.Correct+s.Correct, sum.Loss+s.Loss
		}
		return encodeScore(sum)
	})
	if err != nil {
		return decodeScore(all), err
	}
	score, now := decodeScore(all), time.Now()
	if rank, _ := p.Rank(); rank == 0 && !known {
		p.decisions.group.Sessions().Emit(p.decisions.epoch, p.Step, score.told("", now.Sub(p.begun)))
	}
	p.begun = now
	return score, nil
}

// MostNumbers is the largest number of numbers that Point.Add adds up in a call.
const MostNumbers = totalWords

// Add is Sum for one to MostNumbers numbers of another meaning. All peers pass as many. Sums of
// integers below 2^53 are exact.
func (p *Point) Add(part ...float64) ([]float64, error) {
	if len(part) < 1 || len(part) > MostNumbers {
		return nil, fmt.Errorf("trainer: Point.Add of %d numbers, want 1 to %d", len(part), MostNumbers)
	}
	all, err := p.remembered(encodeNumbers(part), func(parts [][totalWords]int64) [totalWords]int64 {
		sums := make([]float64, len(part))
		for _, w := range parts {
			for i, x := range decodeNumbers(w, len(part)) {
				sums[i] += x
			}
		}
		return encodeNumbers(sums)
	})
	if err != nil {
		return nil, err
	}
	return decodeNumbers(all, len(part)), nil
}

// Known reports whether the next Sum or Add returns a total that peers have computed at this point
// before, without the part of this peer.
func (p *Point) Known() bool { return p.sums < len(p.decisions.point.sums) }

// Gather returns the words of all peers, by rank. All peers call it in the same order with equally
// many words, among their calls of Sum and Add. Unlike a sum it is not remembered: after an error
// this point comes again, and the peers call it again.
func (p *Point) Gather(words []int64) ([][]int64, error) {
	if err := errors.Join(p.broken, p.failed); err != nil {
		return nil, err
	}
	all, err := p.gather(words)
	p.broken = err
	return all, err
}

// remembered returns the next total of this point: one that is known, or else the one that add
// makes of the parts of all ranks, in rank order.
func (p *Point) remembered(part [totalWords]int64, add func(parts [][totalWords]int64) [totalWords]int64) ([totalWords]int64, error) {
	if err := errors.Join(p.broken, p.failed); err != nil {
		return part, err
	}
	at := &p.decisions.point
	if p.sums == maxSums {
		p.failed = errSums
		return part, errSums
	}
	// A point that is yielded again has the sums of the first time: they are returned without a
	// collective call.
	if !p.Known() {
		all, err := p.gather(part[:])
		if err != nil {
			p.broken = err
			return part, err
		}
		var parts [][totalWords]int64
		for _, w := range all {
			parts = append(parts, [totalWords]int64(w))
		}
		at.sums = append(slices.Clone(at.sums), add(parts))
	}
	p.sums++
	return at.sums[p.sums-1], nil
}

// gather returns the words of all ranks, by rank.
func (p *Point) gather(words []int64) ([][]int64, error) {
	if p.session == nil {
		return [][]int64{words}, nil
	}
	p.idle() // a peer that waits for others is not busy
	defer func() { p.idle = p.decisions.busy(p.session) }()
	all := make([]int64, len(p.session.View.Members)*len(words))
	if err := collective.AllGather(p.ctx, p.session.Comm.With(collective.CallOptions{For: "score"}), all, words); err != nil {
		return nil, fmt.Errorf("share the score after step %d: %w", p.Step, err)
	}
	return slices.Collect(slices.Chunk(all, len(words))), nil
}

// errSums is returned by the ninth call of Sum at a point.
var errSums = errors.New("a point has at most 8 sums: combine several scores in one Sum")

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
