package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// Peer says how a program takes part in a job.
type Peer struct {
	// Open joins the group of the job.
	Open func(ctx context.Context) (*elastic.Group, error)
	// Ending is called when the training has ended, before the group is closed: from then on the end
	// of the program is no death. It may be nil.
	Ending func()
	// Computing is called when Serve begins to wait for an answer of the program, and done when it has
	// it. Busy is called with what the program says that it is busy with, and done when it is no longer;
	// Fail with the text of its error. They may be nil.
	Computing func() (done func())
	Busy      func(what string) (done func())
	Fail      func(text string)
	// Log is called with lines for people; it may be nil.
	Log func(line string)
	// Release is the version of elrun, for the error that a program of another version gets.
	Release string
}

// Serve trains the model of the program at the other end of conn until the job has ended at this
// peer, tells the program the outcome, and returns it. memory is shared with the program, and belongs
// to Serve until it returns. An error of the program is returned as its text. ErrGone means that it
// has ended or closed the connection: then the group is left open, and the caller ends the process. A
// goroutine of Serve reads conn until the caller closes it.
func Serve(ctx context.Context, conn io.ReadWriter, memory []byte, peer Peer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if peer.Computing == nil {
		peer.Computing = func() func() { return func() {} }
	}
	if peer.Busy == nil {
		peer.Busy = func(string) func() { return func() {} }
	}
	p := &program{memory: memory}
	idle := func() {} // ends what the program is busy with
	// A program that asks to leave before it is in a group ends at once.
	leave := make(chan struct{}, 1)
	p.link = &link{conn: conn, frames: make(chan frame), leave: func() {
		select {
		case leave <- struct{}{}:
		default:
		}
	}, fail: func(err error) {
		if text, ok := err.(failure); ok && peer.Fail != nil {
			peer.Fail(string(text))
		}
		cancel(err)
	}, busy: func(what string) {
		idle()
		idle = func() {}
		if what != "" {
			idle = peer.Busy(what)
		}
	}, waits: peer.Computing}
	go p.link.read(ctx)
	err := p.serve(ctx, peer, leave)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("remote: %w", cause) // the program knows its own error
	}
	sent := p.link.send(frame{kind: kindEnd, payload: p.end(err)})
	if err := errors.Join(err, sent); err != nil {
		return fmt.Errorf("remote: %w", err)
	}
	return nil
}

// program is the model of the program, for package trainer: an Updater, and a function for gradients.
// The goroutine of Serve makes all calls.
type program struct {
	link   *link
	memory []byte
	ctx    context.Context // of Serve, for calls of package trainer that have no context
	coming []frame         // AHEAD, for before the next WORK
	result *trainer.Result
	kept   int64 // step of the kept parameters; 0 for none
	point  evaluations
	told   figures // of the last step
}

// figures is what the program tells of a step with APPLIED, for the event log.
type figures struct {
	Rate    float64            `json:"rate"`
	Metrics map[string]float64 `json:"metrics"`
}

// Bounds of figures: their number, and the bytes of a name.
const maxFigures, maxFigureName = 64, 128

// decode decodes the payload of APPLIED, which may be empty.
func (f *figures) decode(payload []byte) error {
	*f = figures{}
	if len(payload) == 0 {
		return nil
	}
	if err := json.Unmarshal(payload, f); err != nil {
		return fmt.Errorf("the program sent no valid figures with APPLIED: %w", err)
	}
	if len(f.Metrics) > maxFigures {
		return fmt.Errorf("the program sent %d figures with APPLIED, want at most %d", len(f.Metrics), maxFigures)
	}
	for name := range f.Metrics {
		if len(name) > maxFigureName {
			return fmt.Errorf("the program sent a figure %.40q..., want a name of at most %d bytes", name, maxFigureName)
		}
	}
	return nil
}

// serve joins the group and trains. It takes part until the end of the job.
func (p *program) serve(ctx context.Context, peer Peer, leave <-chan struct{}) (err error) {
	p.ctx = ctx
	first, err := p.link.receive(ctx, "the start", kindHello)
	if err != nil {
		return err
	}
	var h hello
	if err := h.decode(first, peer.Release); err != nil {
		return err
	}
	m, err := h.model(p.memory)
	if err != nil {
		return err
	}
	m.Gradient, m.Updater = p.gradient, p
	if h.Ahead {
		m.Ahead = p.foresee
	}
	cfg := h.config()
	cfg.Hooks.Log, cfg.Hooks.Done = peer.Log, func(r trainer.Result) { p.result = &r }
	g, err := peer.Open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// The others must take a program that has ended for dead, not for one that has left.
		if errors.Is(context.Cause(ctx), ErrGone) {
			return
		}
		if peer.Ending != nil {
			peer.Ending()
		}
		err = errors.Join(err, g.Close())
	}()
	left, done := context.WithCancel(ctx)
	defer done()
	go func() {
		select {
		case <-leave:
			g.Leave()
		case <-left.Done():
		}
	}()
	run := trainer.New(g, m, cfg)
	p.point.link = p.link
	for at := range run.Points(ctx, trainer.EveryPass) {
		if err := p.point.serve(ctx, at); err != nil {
			at.Fail(err)
		}
	}
	for i, kept := range run.Kept() { // no step needs the gradients any more
		copy(m.Grads[i], kept.Data)
	}
	p.kept = run.Status().Kept
	return run.Err()
}

// gradient lets the program add the gradients of a batch.
func (p *program) gradient(b *trainer.Batch) (float64, error) {
	b.Grad(0) // from here on the memory of the gradients is free
	for _, f := range p.coming {
		if err := p.link.send(f); err != nil {
			return 0, err
		}
	}
	p.coming = nil
	f, err := p.link.ask(p.ctx, frame{kind: kindWork, a: b.Step(), payload: units(b.Microbatches())}, kindDone)
	if err != nil {
		return 0, err
	}
	if f.a < 0 {
		return 0, fmt.Errorf("%d samples: %w", len(b.Samples()), trainer.ErrOutOfMemory)
	}
	b.Unforeseen(time.Duration(f.a) * time.Microsecond)
	switch weight := kernel.Elements[float64](f.payload); len(weight) {
	case 0:
	case 1:
		b.Weight(weight[0])
	default:
		return 0, fmt.Errorf("the program sent %d weights with DONE, want one at most", len(weight))
	}
	return f.b, nil
}

// foresee lets the program load microbatches that it will probably compute.
func (p *program) foresee(step int64, microbatches [][]int) {
	p.coming = append(p.coming, frame{kind: kindAhead, a: step, payload: units(microbatches)})
}

// units returns the payload of microbatches: for each its length and its samples, as int64.
func units(microbatches [][]int) []byte {
	var words []int64
	for _, m := range microbatches {
		words = append(words, int64(len(m)))
		for _, sample := range m {
			words = append(words, int64(sample))
		}
	}
	return kernel.Bytes(words)
}

// Apply implements optim.Updater: the program updates the parameters with the mean, which is also in the
// memory of the gradients.
func (p *program) Apply(c optim.Commit, _ [][]float32) error {
	news, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("describe step %d: %w", c.Step, err)
	}
	f, err := p.link.ask(p.ctx, frame{kind: kindApply, a: c.Step, payload: news}, kindApplied)
	if err != nil {
		return err
	}
	return p.told.decode(f.payload)
}

// Figures implements optim.Teller.
func (p *program) Figures() (rate float64, metrics map[string]float64) {
	return p.told.Rate, p.told.Metrics
}

// Save implements optim.Updater.
func (p *program) Save() ([]byte, error) {
	f, err := p.link.ask(p.ctx, frame{kind: kindSave}, kindBlob)
	return f.payload, err
}

// Load implements optim.Updater.
func (p *program) Load(state []byte) error {
	_, err := p.link.ask(p.ctx, frame{kind: kindLoad, payload: state}, kindLoaded)
	return err
}

// end is the last frame to a program.
type end struct {
	// Error is empty after success. Class says what it is: left, late, quorum, notfinite, weights or
	// failed.
	Error, Class string
	Result       *trainer.Result
	// Kept is the step of the kept parameters, which the memory of the gradients has; 0 for none.
	Kept int64
}

// end returns the payload of the last frame, for the outcome of the training.
func (p *program) end(err error) []byte {
	e := end{Result: p.result, Kept: p.kept}
	switch {
	case err == nil:
	case errors.Is(err, elastic.ErrLeft):
		e.Class = "left"
	case errors.Is(err, elastic.ErrFinished):
		e.Class = "late"
	case errors.Is(err, elastic.ErrQuorum):
		e.Class = "quorum"
	case errors.Is(err, trainer.ErrNotFinite):
		e.Class = "notfinite"
	case errors.Is(err, trainer.ErrWeights):
		e.Class = "weights"
	default:
		e.Class = "failed"
	}
	if err != nil {
		e.Error = err.Error()
	}
	text, _ := json.Marshal(e) // it cannot fail: all fields are numbers and texts
	return text
}
