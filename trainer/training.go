package trainer

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/elrun/elrun/elastic"
)

// Training is a run with points, at which programs decide together: about a score on a test set,
// which model to keep, and whether to stop. Nothing is in flight there, and all peers have the
// parameters of the same step. Decisions are exact and elastic: all peers see the same sums and
// come to the same end, whoever dies or joins meanwhile.
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
//			continue // this point comes again, among those who are left
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
// A peer that joins knows nothing of the points before: of the decisions those of the peer count
// that has seen most points, the lowest rank of equals. Run is the short form, without points. A
// Training is not safe for concurrent use.
type Training struct {
	job   *job
	group *elastic.Group
	model Model
	cfg   Config
	err   error
}

// Interval is the number of steps between two points of a Training.
type Interval int64

// EveryPass has a point after each pass over the data.
const EveryPass Interval = 0

// errNotRun is the error of a Training of which nobody has asked for the points.
var errNotRun = errors.New("trainer: not run yet: range over Points")

// New returns a training of model on all peers of group, which begins with Points. What is wrong
// with its arguments is told by Err.
func New(group *elastic.Group, model Model, cfg Config) *Training {
	return &Training{group: group, model: model, cfg: cfg, err: errNotRun}
}

// Points trains until the job is finished, and yields a point after each so many steps, and after
// the last one. All peers ask for the same interval. A point whose Sum has failed comes again, so
// that the loop goes on then with continue; and a loop that is left in another way ends the job at
// this peer with an error. It can be called once.
func (t *Training) Points(ctx context.Context, every Interval) iter.Seq[*Point] {
	return func(yield func(*Point) bool) {
		if t.err != errNotRun {
			t.err = errors.Join(t.err, errors.New("trainer: Points was called twice: make a new Training"))
			return
		}
		if every < 0 {
			t.err = errors.New("trainer: the interval of points is below 0: want EveryPass, or a number of steps")
			return
		}
		t.err = errors.New("trainer: the loop of Points was left by a panic")
		t.err = t.run(ctx, func(j *job) {
			j.decisions.every, j.decisions.show = int64(every), yield
			if every == EveryPass {
				j.decisions.every = j.plan.perPass
			}
		})
	}
}

// run is Run after a change of the job.
func (t *Training) run(ctx context.Context, change func(j *job)) (err error) {
	if t.job, err = newJob(t.group, t.model, t.cfg); err != nil {
		return err
	}
	change(t.job)
	return t.job.run(ctx)
}

// Err returns the error with which the training has ended, as Run does; nil if it is finished.
func (t *Training) Err() error { return t.err }

// Status tells how far a training has come, and why it goes no further.
type Status struct {
	Step, Of int64 // last committed, and those of the whole job
	Stopped  bool  // by Point.Stop
	Kept     int64 // step of the model that Kept returns; 0 if there is none
	Err      error // as Training.Err
}

// Status returns how far the training has come.
func (t *Training) Status() Status {
	s := Status{Err: t.err}
	if j := t.job; j != nil {
		s.Step, s.Of, s.Stopped, s.Kept = j.state.committed(), j.plan.steps, j.decisions.stopped, j.decisions.kept
	}
	return s
}

// Kept returns the parameters of the step at which the model was kept last, the same at every
// peer that has finished; nil if there is none. They belong to the caller.
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

// Point is a place between two steps. It is valid in its turn of the loop of Training.Points.
type Point struct {
	Step, Of int64 // the last committed step, whose parameters the model has; the steps of the whole job

	decisions *decisions
	ctx       context.Context
	session   *elastic.Session // nil if this peer is alone
	idle      func()           // ends being busy
	sums      int              // so many calls of Sum
	broken    error            // the session is
	failed    error            // the program's cause
	stop      bool
	keep      bool
}

// Rank returns the number of this peer among those that are at the point, from 0, and how many
// they are.
func (p *Point) Rank() (rank, ranks int) {
	if p.session == nil {
		return 0, 1
	}
	return p.session.Rank, len(p.session.View.Members)
}

// Part returns the part [lo, hi) of n samples that is this peer's: those of all peers are the
// whole.
func (p *Point) Part(n int) (lo, hi int) {
	rank, ranks := p.Rank()
	return n * rank / ranks, n * (rank + 1) / ranks
}

// Sum adds up the parts of a score, and returns the same at every peer: counts are exact, and the
// last bits of a loss depend on who has evaluated which part. All peers call it in the same order,
// at most four times at a point. After an error this point comes again among the peers that are
// left; what they have seen of it stays what it is.
func (p *Point) Sum(part Score) (Score, error) {
	if err := errors.Join(p.broken, p.failed); err != nil {
		return Score{}, err
	}
	at := &p.decisions.point
	if p.sums == maxSums {
		p.failed = errSums
		return Score{}, errSums
	}
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

// Keep has a copy of the parameters kept in memory, in place of one from before: Training.Kept
// returns it, at peers that have joined since, too.
func (p *Point) Keep() { p.keep = true }

// Stop ends the job here, at all peers.
func (p *Point) Stop() { p.stop = true }

// Fail ends the job at this peer, with err as the cause that the others are told.
func (p *Point) Fail(err error) {
	if p.failed == nil {
		p.failed = err
	}
}
