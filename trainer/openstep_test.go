package trainer

import (
	"bytes"
	"errors"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/optim"
)

// nobody is the transport of a group of one, and sends nothing.
type nobody struct{ transport.Transport }

func (nobody) Signals() <-chan transport.Signal { return nil }
func (nobody) Close() error                     { return nil }
func (nobody) Revoke(error)                     {}

// sessionOf returns a session of a single peer, without a group.
func sessionOf(t *testing.T, id elastic.ID, epoch uint64) *elastic.Session {
	t.Helper()
	comm, err := collective.New(nobody{}, 0, 1, collective.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = comm.Close() })
	return &elastic.Session{View: elastic.View{Epoch: epoch, Members: []elastic.Member{{ID: id}}}, Comm: comm}
}

// entered lets the open step enter a new session of a single peer, and returns the session.
func entered(t *testing.T, o *openStep, id elastic.ID, epoch uint64) *elastic.Session {
	t.Helper()
	s := sessionOf(t, id, epoch)
	o.reducer.enter(s)
	if err := o.enter(s, []resumeReport{o.entry(s)}); err != nil {
		t.Fatal(err)
	}
	if n := o.balance.shares[0].Len(); n != 4 {
		t.Fatalf("the share of a single peer has %d microbatches", n)
	}
	return s
}

// A peer keeps its microbatches from one session to the next. Under another identity it does not keep them, because other peers
// have then computed them.
func TestContributionsBelongToAnIdentity(t *testing.T) {
	o := alone(t, ramp{paramsOf(2, 3)}, nil)
	entered(t, o, "me", 1)
	if err := o.own.add(o.model, o.plan.step(1), []int{2}, ignore); err != nil {
		t.Fatal(err)
	}
	entered(t, o, "me", 2)
	if !o.own.held.Has(2) {
		t.Error("the contribution did not survive the change of the session")
	}
	entered(t, o, "me again", 3)
	if o.own.held.Has(2) || o.own.samples != 0 {
		t.Error("the contribution survived the change of the identity")
	}
}

// counted is a ramp that calls a function after each microbatch.
type counted struct {
	ramp
	after func(samples []int) error
}

func (c counted) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	loss, _ := c.ramp.Accumulate(grad, samples, done)
	return loss, c.after(samples)
}

// A session breaks while this peer computes. In the next session the computed microbatches count, and the peer computes the rest.
// The step is the same as in one session.
func TestAStepOutlivesItsSession(t *testing.T) {
	calls, after := 0, func() error { return nil }
	m := counted{ramp{paramsOf(2, 3, 17)}, func([]int) error { calls++; return after() }}
	o, whole := alone(t, m, nil), alone(t, ramp{paramsOf(2, 3, 17)}, nil)
	s := entered(t, o, "me", 1)
	after = func() error {
		if calls == 2 {
			s.Comm.Revoke(errors.New("somebody is gone"))
		}
		return nil
	}
	if _, err := o.contribute(t.Context(), s); !goOn(err) || o.own.held.Len() != 2 || o.work.step != 0 {
		t.Fatalf("error %v, %d microbatches held", err, o.own.held.Len())
	}
	s = entered(t, o, "me", 2)
	concluded(t, o, s)
	if calls != 4 || o.work.step != 1 || o.work.recomputed != 0 || o.balance.micros != 0 {
		t.Errorf("%d microbatches computed, own part %+v", calls, o.work)
	}
	concluded(t, whole, entered(t, whole, "me", 2))
	if !bytes.Equal(saved(t, o.state), saved(t, whole.state)) {
		t.Error("the step has become another by the change of the session")
	}
}

// concluded commits a step in the session of a single peer.
func concluded(t *testing.T, o *openStep, s *elastic.Session) {
	t.Helper()
	try, err := o.contribute(t.Context(), s)
	if err == nil {
		err = try.sums.wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	step := o.own.step
	committed, err := o.conclude(s, try.plan, []rankReport{o.report()})
	if err != nil || !committed || o.state.committed() != step || o.own.step != step+1 || o.own.held.Len() != 0 {
		t.Fatalf("committed %t after step %d, open %d, error %v", committed, o.state.committed(), o.own.step, err)
	}
}

// If a model has too little memory for the peer's share, the share is bounded at half, and the computed microbatches are dropped. If
// there is too little memory for one microbatch, the peer fails.
func TestTooLargeShares(t *testing.T) {
	most := 0
	m := counted{ramp{paramsOf(2)}, func([]int) error {
		if most--; most < 0 {
			return ErrOutOfMemory
		}
		return nil
	}}
	o := alone(t, m, nil)
	for _, want := range []int{2, 2, 2} { // a single peer still has to compute the whole step
		most = 1
		_, err := o.contribute(t.Context(), entered(t, o, "me", 1))
		if !errors.Is(err, errNextSession) || o.balance.most != want || o.own.held.Len() != 0 {
			t.Errorf("bound %d, want %d; %d microbatches held, error %v", o.balance.most, want, o.own.held.Len(), err)
		}
	}
	if err := o.shrinkBatch(o.plan.step(1), 1, ErrOutOfMemory); errors.Is(err, errNextSession) || !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("a single microbatch is too much: %v", err)
	}
}

// ramp is a model whose gradients depend on the sample and the element.
type ramp struct{ params []Param }

func (r ramp) Params() []Param { return r.params }

func (r ramp) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i, g := range grad {
		for j := range g {
			for _, s := range samples {
				g[j] += float32(s*7+i*3+j) / 16
			}
		}
		done(i)
	}
	return float64(len(samples)), nil
}

// newRamp returns an open step without a group, in exact mode or not.
func newRamp(t *testing.T, exactly bool) *openStep {
	return alone(t, ramp{paramsOf(2, 3, 17)}, func(c *Config) {
		c.Gradients.Exact, c.Optimizer, c.Gradients.Clip = exactly, optim.Adam{}, 3
	})
}

// solo commits the next step as the only member of a group does.
func (r *openStep) solo(t *testing.T) {
	t.Helper()
	p := r.plan.step(r.state.committed() + 1)
	for k := range p.microbatches {
		if err := r.own.add(r.model, p, []int{k}, ignore); err != nil {
			t.Fatal(err)
		}
	}
	switch sums := r.own.sums.(type) {
	case *floatAccumulator:
		copy(r.state.grads.staging.flat, sums.own.flat)
	case *exactAccumulator:
		copy(sums.all, sums.own)
		copy(sums.step, sums.peaks)
	}
	next, fits := r.own.sums.mean(float64(r.own.samples), r.state.undo.left)
	if !fits {
		r.own.reset(p.step, r.own.attempt+1, next, p.microbatches)
		r.solo(t)
		return
	}
	o := outcome{Step: p.step, Attempt: r.own.attempt, Epoch: 1, Peers: 1, Samples: int64(r.own.samples), Loss: r.own.loss,
		Shares: []share{{"me", r.own.held.Ranges()}}}
	if err := r.state.commit(o, next, nil); err != nil {
		t.Fatal(err)
	}
}

// A contribution is dropped when an update from another peer commits its step. The measurements of this peer's work in that step
// are kept for the report.
func TestApplyEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, false), newRamp(t, false)
	leader.solo(t)
	if err := r.own.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
		t.Fatal(err)
	}
	r.own.recomputed = 1
	if err := r.state.Apply(bytes.NewReader(updated(t, leader.state))); err != nil {
		t.Fatal(err)
	}
	if r.own.step != 2 || r.own.held.Len() != 0 || r.work.step != 1 || r.work.recomputed != 1 || r.state.last.Step != 1 {
		t.Errorf("contribution to step %d of %v, own work %+v", r.own.step, r.own.held.Ranges(), r.work)
	}
}

// A contribution is dropped when the state from which it was computed is replaced.
func TestLoadEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, true), newRamp(t, true)
	start := saved(t, leader.state)
	leader.solo(t)
	for step, state := range [][]byte{start, saved(t, leader.state)} {
		if err := r.own.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
			t.Fatal(err)
		}
		if err := r.state.Load(bytes.NewReader(state)); err != nil {
			t.Fatal(err)
		}
		if r.own.step != int64(step)+1 || r.own.held.Len() != 0 || r.own.samples != 0 || !r.own.scale.Equal(r.state.scale) {
			t.Errorf("step %d: contribution to step %d of %v", step, r.own.step, r.own.held.Ranges())
		}
	}
}
