package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/netpoll"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
)

// runner is a run of Run. It is not safe for concurrent use.
type runner struct {
	group  *elastic.Group
	model  Model // guarded
	cfg    Config
	plan   plan
	layout layout
	held   []elastic.Setting // in which all members agree
	state  *state
	saver  *saver
	ahead  *ahead
	// progress is that of calls while the model computes.
	progress *netpoll.Engine
	revoke   func(error)  // of the session; nil before the first
	ended    func() error // why the run ends
	most     int          // microbatches that a call of the model may have

	// The open step, which is the one after.
	open      contribution
	overlaps  bool          // the step after it may begin meanwhile
	next      *try          // at the open step, if a call of it began in the step before
	shares    []loadbal.Set // what each rank of the session is to contribute
	balance   balance       // from which they follow
	links     links         // from which the order of the ring follows
	housing   housing       // of the vectors that are reduced
	decisions decisions     // of the programs, between steps
	pulses    pulses        // of the steps of this session
	// compressed is open.sums, or nil where gradients travel as they are.
	compressed *compressed
	noise      noise

	reporter reporter // of stable steps
	resyncs  int
}

// Run trains model on all peers of group until the configuration says that it is
// finished, and returns nil then. All peers call it with equal configurations
// and models; a peer that comes later gets the state of the others. Peers may come, go
// and die meanwhile. On an error the parameters are those of the last committed
// step, but for one whose cause is elastic.ErrFenced, after which they are of no use.
//
// Errors that are no mistake of the program: elastic.ErrLeft when this peer has left
// by Group.Leave, elastic.ErrQuorum when too few peers were left for too long, and
// others of elastic.ErrNoView. ErrNotFinite comes at every peer. When this peer has
// committed the last step, what happens to the group is no longer an error.
func Run(ctx context.Context, group *elastic.Group, model Model, cfg Config) error {
	return New(group, model, cfg).run(ctx, func(*runner) {})
}

// run trains until the job is finished.
func (r *runner) run(ctx context.Context) (err error) {
	defer r.saver.writing.Wait()
	defer r.ahead.start(ctx)()
	if r.progress, err = netpoll.New(); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	defer r.progress.Close() // of a pipe that nobody uses
	r.ended = func() error { return context.Cause(ctx) }
	if err := r.resume(); err != nil {
		return err
	}
	r.group.Hold(r.replica(), slices.Concat(r.cfg.Settings, r.held, r.decisions.settings()))
	r.group.OnQuorumLost(func() { r.saver.now(r.state) })
	defer func() { _ = leave(r.housing.rooms, nil) }() // what is not given back goes with the process
	err = r.sessions(ctx)
	if errors.Is(err, elastic.ErrLeft) {
		r.giveUp("leaving")
	}
	if err != nil {
		return fmt.Errorf("trainer: after step %d of %d: %w", r.state.committed(), r.plan.steps, err)
	}
	return nil
}

// errGone is why a session ends in which a model or a program has panicked, or has ended its
// goroutine.
var errGone = errors.New("its program has left Run by a panic or runtime.Goexit")

// guarded returns a model that tells the other peers if it never returns, and whose Batches
// know of the run.
func (r *runner) guarded(m Model) Model {
	gradient := m.Gradient
	m.Gradient = func(b *Batch) (float64, error) {
		returned := false
		defer func() {
			if !returned && r.revoke != nil {
				r.revoke(errGone)
			}
		}()
		loss, err := gradient(b.Wrap(func(g *Gate) {
			useless := g.Err
			g.Yield = r.progress.Poke
			g.Err = func() error { return cmp.Or(useless(), r.ended()) }
		}))
		returned = true
		return loss, err
	}
	return m
}

// newRunner checks what the user gave and takes all the memory that steps need.
func newRunner(group *elastic.Group, model Model, cfg Config) (*runner, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := model.check(); err != nil {
		return nil, err
	}
	r := &runner{group: group, cfg: cfg, plan: newPlan(cfg), layout: newLayout(model.Params, cfg.BucketBytes/4),
		ahead: newAhead(model.Prefetch), overlaps: overlaps(model, cfg), ended: func() error { return nil }}
	r.model = r.guarded(model)
	if model.Order != nil {
		if err := r.layout.completeIn(model.Order(r.overlaps)); err != nil {
			return nil, err
		}
	}
	if err := r.hold(); err != nil {
		return nil, err
	}
	r.reporter = reporter{plan: r.plan, told: cfg.OnStep, emit: r.group.Emit, digest: func(int64) string { return digestText(r.state.dueDigest()) }}
	r.decisions = decisions{group: group, params: r.state.pipeline.params, of: r.plan.steps}
	r.most = mostOf(model, cfg.Microbatch, cfg.Exact)
	r.balance.most, r.balance.early = cfg.MaxShare, cfg.Delay
	r.links.bytes = r.compressed.bytes(r.layout)
	r.held = r.settings()
	r.saver = newSaver(cfg, r.plan, model.Params, r.held)
	r.saver.emit = r.group.Emit
	r.reopen()
	return r, nil
}

// overlaps reports whether a step may begin in the one before. Without a delay that takes a model
// that waits for its parameters, and sums of which a part tells what becomes of a parameter: in
// exact mode all of them together tell whether the step counts, and a limit is one for their norm.
func overlaps(m Model, cfg Config) bool { return cfg.Delay || m.Waits && !cfg.Exact && cfg.Clip == 0 }

// hold takes the memory of the state and of the contribution to the open step.
func (r *runner) hold() error {
	coding, err := compress.Parse(r.cfg.Compression)
	if err != nil {
		return fmt.Errorf("trainer: Compression: %w", err)
	}
	var grads *gradients
	var scale exact.Scale
	switch {
	case coding != nil:
		r.compressed, grads = newCompressed(r.layout, coding, func() stepPlan { return r.plan.step(r.open.step) })
		r.open.sums = r.compressed
	case r.cfg.Exact:
		if scale, err = exact.New(len(r.layout.params), r.plan.mostMicrobatches()); err != nil {
			return fmt.Errorf("trainer: exact mode: %w", err)
		}
		r.open.sums, grads = newQuantised(r.layout)
	default:
		r.open.sums, grads = newPlain(r.layout)
	}
	r.state = newState(r.plan, r.cfg, r.layout.params, grads, scale)
	r.state.observer = r
	return nil
}

// sessions trains in one session after the other until the job is finished. A session
// that was revoked or left is followed by another one, or by the reason why there is
// none. The contribution to the open step is kept from one to the next.
func (r *runner) sessions(ctx context.Context) error {
	for epoch := uint64(0); ; {
		s, err := r.group.Next(ctx, epoch)
		if err != nil && r.finished() && !r.state.void && ctx.Err() == nil {
			return r.endAlone(ctx)
		}
		if err != nil {
			return err
		}
		epoch = s.View.Epoch
		if err = r.session(ctx, s); err == nil || !goOn(err) {
			return err
		}
	}
}

// session trains in one session until the job is finished or the session ends.
func (r *runner) session(ctx context.Context, s *elastic.Session) error {
	r.next, r.revoke = nil, s.Comm.Revoke
	r.house(s.Comm)
	r.divide(s.View)
	if err := r.enter(ctx, s); err != nil {
		return err
	}
	r.tellShares(s)
	for {
		if err := r.decisions.decide(ctx, s, r.state.committed()); err != nil {
			return err
		}
		if r.finished() {
			return r.end(ctx, s)
		}
		if err := r.step(ctx, s); err != nil {
			return err
		}
	}
}

// finished reports whether there is no further step.
func (r *runner) finished() bool { return r.state.committed() >= r.plan.steps || r.decisions.stopped }

// replica is what elastic levels among the members, and asks about peers that want to be some.
type replica struct {
	*state
	judge
	trial
}

// replica returns what elastic gets to know of the run.
func (r *runner) replica() replica {
	return replica{r.state, judge{r.cfg.Admit == AdmitAlways, r.cfg.Microbatch, &r.pulses.outlook}, trial{r}}
}

// superseded reports the last step before others' copies take this peer to a later one, if it
// is still the peer that has contributed to it. With a whole state it gives up what compression
// has held back.
func (r *runner) superseded(by int64, whole bool) {
	last := r.state.last
	if _, took := last.share(r.open.owner); took && !r.state.void && r.group.Self().ID == r.open.owner {
		r.reporter.superseded(last, r.open.owner, by)
	}
	if whole {
		r.giveUp("taking the state of others")
	}
}

// advanced closes the open step, if it is that of o, and opens the one after.
func (r *runner) advanced(was, o outcome) {
	_, counted := o.share(r.open.owner)
	r.compressed.settle(counted && r.open.step == o.Step)
	r.reporter.advance(was, o)
	if r.open.step == o.Step {
		r.reporter.own = work{step: o.Step, compute: r.open.compute, recomputed: r.open.recomputed,
			predicted: r.balance.predicted}
		r.reporter.own.sent, r.reporter.own.raw = r.compressed.traffic()
	}
	r.reopen()
}

// reopen begins the contribution to the step after the committed one.
func (r *runner) reopen() {
	r.open.reset(r.state.committed()+1, 0, r.state.scale, r.openMicrobatches())
}

// openMicrobatches is how many the step after the committed one has; none after the last.
func (r *runner) openMicrobatches() int { return r.plan.after(r.state.committed()) }

// resume loads the checkpoint that the job goes on from, if it is to.
func (r *runner) resume() error {
	if r.cfg.Checkpoint.Resume == "" {
		return nil
	}
	defer r.group.Busy("loading a checkpoint")()
	return r.saver.resume(r.state)
}
