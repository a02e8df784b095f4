package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/optim"
)

// runner is a run of Run. It is not safe for concurrent use.
type runner struct {
	group  *elastic.Group
	model  Model
	cfg    Config
	plan   plan
	layout layout

	params    [][]float32   // the model's memory
	state     [][][]float32 // of the optimizer: per parameter, per slot
	open      contribution  // to the step after committed
	sums      []float32     // flat: the gradient sums of all peers
	sumViews  [][]float32   // sums, per parameter
	committed int64         // last step applied
	digest    uint64        // of the parameters after it
	unstable  *StepReport   // of the committed step, until it is known to be stable
}

// Run trains model on all peers of group until the configuration says that it is
// finished, and returns nil then. All peers call it with equal configurations
// and models. On an error the parameters are those of the last committed step.
// ErrDiverged and ErrNotFinite, if they are the cause, come at every peer.
func Run(ctx context.Context, group *elastic.Group, model Model, cfg Config) error {
	r, err := newRunner(group, model, cfg)
	if err != nil {
		return err
	}
	for epoch := uint64(0); ; {
		s, err := group.Next(ctx, epoch)
		if err != nil {
			return fmt.Errorf("trainer: after step %d of %d: %w", r.committed, r.plan.steps, err)
		}
		epoch = s.View.Epoch
		err = r.session(ctx, s)
		if err == nil {
			return nil
		}
		// A session that was revoked is followed by another one, or by the reason
		// why there is none. The contribution to the open step is kept.
		if !errors.Is(err, collective.ErrRevoked) {
			return fmt.Errorf("trainer: after step %d of %d: %w", r.committed, r.plan.steps, err)
		}
	}
}

// newRunner checks what the user gave and takes all the memory that steps need.
func newRunner(group *elastic.Group, model Model, cfg Config) (*runner, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	params := model.Params()
	if err := checkParams(params); err != nil {
		return nil, err
	}
	r := &runner{group: group, model: model, cfg: cfg, plan: newPlan(cfg), layout: newLayout(params, cfg.BucketBytes/4)}
	r.open.grad = make([]float32, r.layout.size())
	r.open.views = r.layout.views(r.open.grad)
	r.sums = make([]float32, r.layout.size())
	r.sumViews = r.layout.views(r.sums)
	for _, p := range params {
		r.params = append(r.params, p.Data)
		r.state = append(r.state, optim.NewState(cfg.Optimizer, len(p.Data)))
	}
	r.digest = digestOf(params)
	return r, nil
}

// checkParams wants at least one parameter, and lengths that fit the shapes.
func checkParams(params []Param) error {
	if len(params) == 0 {
		return errors.New("trainer: the model has no parameters")
	}
	for i, p := range params {
		size := 1
		for _, side := range p.Shape {
			size *= side
		}
		if size != len(p.Data) || size == 0 {
			return fmt.Errorf("trainer: parameter %d, %q, has %d elements in the shape %v", i, p.Name, len(p.Data), p.Shape)
		}
	}
	return nil
}

// session trains in one session until the job is finished or the session ends. An
// error that is not ErrRevoked ends the job.
func (r *runner) session(ctx context.Context, s *elastic.Session) error {
	for r.committed < r.plan.steps {
		if err := r.step(ctx, s); err != nil {
			return err
		}
	}
	// A tail without a step tells all that all have committed the last one.
	if _, err := r.tail(ctx, s, slot{}); err != nil {
		return err
	}
	score, err := r.evaluate(ctx, s)
	if err != nil {
		return err
	}
	r.finish(s, score)
	return nil
}

// finish reports the end of the job.
func (r *runner) finish(s *elastic.Session, score *Score) {
	result := Result{Steps: r.committed, Peers: len(s.View.Members), Score: score, SHA256: sha256Of(r.layout.params)}
	r.group.Emit(s.View.Epoch, r.committed, result.done())
	if r.cfg.Done != nil {
		r.cfg.Done(result)
	}
}

// peerName names a rank for people.
func peerName(s *elastic.Session) func(rank int) string {
	return func(rank int) string { return fmt.Sprintf("rank %d (%s)", rank, s.View.Members[rank].ID.Short()) }
}
