package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/netpoll"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// runner is a run of Run. It is not safe for concurrent use.
type runner struct {
	group  *elastic.Group
	model  Model // guarded
	cfg    Config
	plan   plan
	layout layout
	held   []elastic.Setting // in which all members agree
	saver  *saver
	ahead  *ahead
	// progress is that of calls while the model computes.
	progress *netpoll.Engine
	revoke   func(error)  // of the session; nil before the first
	ended    func() error // why the run ends
	most     int          // microbatches that a call of the model may have

	// The state: what all members hold alike after the last committed step.
	params    [][]float32   // the model's memory
	slots     [][][]float32 // of the optimizer: per parameter, per slot
	scale     exact.Scale   // of the step that follows; exact mode only
	committed int64
	last      outcome // of the committed step
	void      bool    // the state is of no use
	known     uint64  // digest of the parameters, if digested
	digested  bool

	// The open step, which is the one after.
	bufs      *gradients
	open      contribution
	pipeline  *pipeline     // begins the step after it
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
	r.group.Hold(r, slices.Concat(r.cfg.Settings, r.held, r.decisions.settings()))
	r.group.OnQuorumLost(func() { r.saver.now(r) })
	defer func() { _ = leave(r.housing.rooms, nil) }() // what is not given back goes with the process
	err = r.sessions(ctx)
	if errors.Is(err, elastic.ErrLeft) {
		r.giveUp("leaving")
	}
	if err != nil {
		return fmt.Errorf("trainer: after step %d of %d: %w", r.committed, r.plan.steps, err)
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
	params := model.Params
	r := &runner{group: group, cfg: cfg, plan: newPlan(cfg), layout: newLayout(params, cfg.BucketBytes/4),
		saver: newSaver(cfg.Checkpoint), ahead: newAhead(model.Prefetch), ended: func() error { return nil }}
	r.model = r.guarded(model)
	r.reporter = reporter{plan: r.plan, told: cfg.OnStep, digest: r.digestText,
		emit: func(epoch uint64, step int64, body event.Body) { r.group.Emit(epoch, step, body) }}
	for _, p := range params {
		r.params = append(r.params, p.Data)
		r.slots = append(r.slots, optim.NewState(cfg.Optimizer, len(p.Data)))
	}
	r.pipeline = newPipeline(r)
	r.decisions = decisions{group: group, params: r.params, of: r.plan.steps}
	if model.Order != nil {
		if err := r.layout.completeIn(model.Order(r.pipeline.on)); err != nil {
			return nil, err
		}
	}
	coding, err := compress.Parse(cfg.Compression)
	if err != nil {
		return nil, fmt.Errorf("trainer: Compression: %w", err)
	}
	switch {
	case coding != nil:
		r.compressed, r.bufs = newCompressed(r.layout, coding, func() stepPlan { return r.plan.step(r.open.step) })
		r.open.sums = r.compressed
	case cfg.Exact:
		if r.scale, err = exact.New(len(params), r.plan.mostMicrobatches()); err != nil {
			return nil, fmt.Errorf("trainer: exact mode: %w", err)
		}
		r.open.sums, r.bufs = newQuantised(r.layout)
	default:
		r.open.sums, r.bufs = newPlain(r.layout)
	}
	r.most = mostOf(model, cfg.Microbatch, cfg.Exact)
	r.balance.most = cfg.MaxShare
	r.links.bytes = r.compressed.bytes(r.layout)
	r.held = r.settings()
	r.reopen()
	return r, nil
}

// sessions trains in one session after the other until the job is finished. A session
// that was revoked or left is followed by another one, or by the reason why there is
// none. The contribution to the open step is kept from one to the next.
func (r *runner) sessions(ctx context.Context) error {
	for epoch := uint64(0); ; {
		s, err := r.group.Next(ctx, epoch)
		if err != nil && r.finished() && !r.void && ctx.Err() == nil {
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
		if err := r.decisions.decide(ctx, s, r.committed); err != nil {
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
func (r *runner) finished() bool { return r.committed >= r.plan.steps || r.decisions.stopped }

// log tells the user what is worth knowing.
func (r *runner) log(format string, args ...any) {
	if r.cfg.Log != nil {
		r.cfg.Log(fmt.Sprintf(format, args...))
	}
}
