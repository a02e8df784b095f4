package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

// arena is a group in virtual time, for use in a synctest bubble. A test can kill a member before any message that the member
// sends, and can let other members join.
type arena struct {
	network network
	first   []elastic.Member
	events  log
	cfg     trainer.Config
	ctx     context.Context // bounds the whole test

	mu      sync.Mutex
	actors  []*actor
	running sync.WaitGroup
	adjust  func(a *actor)                                           // called before an actor starts
	retry   func(x *actor, r elastic.Retry) (done func(), err error) // elastic.Config.OnRetry, if set
	wraps   bool                                                     // models are wrapped
	boards  *boards                                                  // words that the members of a host share; nil for none
}

// network connects the processes of an arena.
type network interface {
	Endpoint(self elastic.Member) elastic.Endpoint
	Kill(id elastic.ID)
	Close() error
}

// actor is one process of an arena.
type actor struct {
	arena *arena
	self  elastic.Member
	group *elastic.Group
	model *slope
	// trained is the model passed to Run: model, possibly wrapped by a test.
	trained interface{ Model() trainer.Model }
	// train replaces Run, if it is set.
	train  func(ctx context.Context, g *elastic.Group, m trainer.Model) error
	cfg    trainer.Config
	sent   atomic.Int64 // number of messages that the process has sent
	killAt atomic.Int64 // number of the message before which the process dies; 0 if it is not killed
	killed atomic.Bool
	begun  atomic.Bool // the process has begun a step
	muted  atomic.Bool // control messages of the process's first identity are dropped
	// touched is the number of changes of queues on boards by the process, and stores is how often it has set its own queue in this
	// step. killAtTouch is the number of the change before which the process dies; 0 if it is not killed.
	touched, stores, killAtTouch atomic.Int64
	// notes is the number of notes that the process has sent. killAtNote is the number of the note before which it dies, and every
	// losing-th note is lost; 0 for none. kindAtKill is the kind of the note before which it died.
	notes, killAtNote, losing, kindAtKill atomic.Int64
	// reopened is the number of identities that the process has had after its first.
	reopened int
	tries    map[int64]int // by step: how often the process has begun the step
	result   *trainer.Result
	steps    []trainer.StepReport
	err      error
}

// slope is a model with ordinary floating-point gradients that depend on the parameters, so that
// any single error persists in the result. A microbatch takes a millisecond.
type slope struct {
	params []trainer.Param
	pace   time.Duration
	scale  float32 // factor of the gradients
	// capacity is the number of microbatches that fit in memory between two resets of computed. 0 means no limit, a negative value no
	// memory at all.
	capacity, computed int
}

func newSlope() *slope {
	m := &slope{pace: time.Millisecond, scale: 1}
	for i, n := range []int{3, 4, 1, 6} {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (s *slope) Params() []trainer.Param { return s.params }

func (s *slope) Model() trainer.Model { return trainer.ModelOf(s) }

func (m *slope) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	if m.pace > 0 {
		<-time.After(m.pace)
	}
	if m.computed++; m.capacity != 0 && m.computed > m.capacity {
		grad[0][0] = 1e9 // the failed call leaves a partial result
		return 0, fmt.Errorf("microbatch %d of the step: %w", m.computed, trainer.ErrOutOfMemory)
	}
	loss := 0.0
	for _, s := range samples {
		for i, g := range grad {
			for j := range g {
				d := m.params[i].Data[j] - float32(math.Sin(float64(s*31+i*17+j*7)))
				g[j] += d * m.scale
				loss += float64(d) * float64(d)
			}
		}
	}
	for i := len(grad) - 1; i >= 0; i-- {
		done(i)
	}
	return loss, nil
}

// churning is the configuration of an arena's job. It has the given number of steps, with 8 microbatches in each step and 3 in
// the last step of each pass. Every candidate is admitted, because these tests are not about admission.
func churning(steps int64, exactly bool) trainer.Config {
	return trainer.Config{Samples: 100, GlobalBatch: 40, Microbatch: 5, Steps: steps, Seed: 4,
		Gradients: trainer.Gradients{BucketBytes: 24, Exact: exactly},
		Balancing: trainer.Balancing{Admit: trainer.AdmitAlways},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.25)}
}

func newArena(n int, cfg trainer.Config) *arena {
	a := &arena{network: mem.NewNetwork(), cfg: cfg}
	for i := range n {
		a.first = append(a.first, elastic.Member{ID: elastic.ID(fmt.Sprintf("peer-of-rank-%d", i)), Index: i})
	}
	return a
}

// play runs the first members to their end, and also the members that start meanwhile.
func (a *arena) play(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	a.playUntil(t, ctx)
}

// playUntil is play with a context that ends the job.
func (a *arena) playUntil(t *testing.T, ctx context.Context) {
	a.ctx = ctx
	for _, m := range a.first {
		a.start(m, a.first)
	}
	a.running.Wait()
	if err := a.network.Close(); err != nil {
		t.Error(err)
	}
}

// start starts a process. If first is nil the process joins a running job; otherwise it is a member
// of the first view.
func (a *arena) start(self elastic.Member, first []elastic.Member) *actor {
	x := &actor{arena: a, self: self, model: newSlope(), cfg: a.cfg, tries: make(map[int64]int)}
	x.cfg.Hooks.OnStep = func(r trainer.StepReport) { x.steps = append(x.steps, r) }
	x.cfg.Hooks.Done = func(r trainer.Result) { x.result = &r }
	x.trained = x.model
	if a.adjust != nil {
		a.adjust(x)
	}
	begin := x.cfg.Hooks.OnBegin
	x.cfg.Hooks.OnBegin = func(step int64) {
		x.begun.Store(true)
		x.stores.Store(0)
		x.tries[step]++
		if begin != nil {
			begin(step)
		}
	}
	a.mu.Lock()
	a.actors = append(a.actors, x)
	a.mu.Unlock()
	a.running.Go(func() { x.err = x.run(a.ctx, first) })
	return x
}

// run is the main function of the process.
func (a *actor) run(ctx context.Context, first []elastic.Member) error {
	cfg := elastic.Config{Endpoint: a.endpoint(a.self), Peers: first, Sink: &a.arena.events, RejoinTimeout: 5 * time.Second}
	cfg.Reopen = func(context.Context) (elastic.Endpoint, error) {
		a.reopened++
		a.muted.Store(false)
		return a.endpoint(elastic.Member{ID: a.self.ID + "-again", Index: a.self.Index}), nil
	}
	if a.arena.retry != nil {
		cfg.OnRetry = func(_ context.Context, r elastic.Retry) (func(), error) { return a.arena.retry(a, r) }
	}
	if first == nil {
		cfg.Contacts = a.arena.training
	}
	g, err := elastic.Join(ctx, cfg)
	if err != nil {
		return err
	}
	a.group = g
	model := a.arena.given(a.trained.Model())
	if a.train != nil {
		return errors.Join(a.train(ctx, g, model), g.Close())
	}
	return errors.Join(trainer.Run(ctx, g, model, a.cfg), g.Close())
}

// given returns the model to pass to Run: m, or a wrapper of m if a.wraps is set.
func (a *arena) given(m trainer.Model) trainer.Model {
	if !a.wraps {
		return m
	}
	return around(m, func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
		return gradient(b.Wrap(func(*trainer.Gate) {}))
	})
}

// endpoint returns the endpoint of one identity of the process.
func (a *actor) endpoint(self elastic.Member) elastic.Endpoint {
	ep := a.arena.network.Endpoint(self)
	ep.Network = watched{ep.Network, a}
	return ep
}

// training lists the processes that have begun a step and are alive.
func (a *arena) training() []elastic.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []elastic.Member
	for _, x := range a.actors {
		if x.begun.Load() && !x.killed.Load() {
			out = append(out, x.self)
		}
	}
	return out
}

// kill ends the process.
func (a *actor) kill() {
	if !a.killed.Swap(true) {
		a.arena.network.Kill(a.self.ID)
	}
}

// sending counts a control message or a data message of the process, and kills the process at the
// message killAt.
func (a *actor) sending() {
	if n := a.sent.Add(1); n == a.killAt.Load() {
		a.kill()
	}
}

// watched forwards the calls of a Network, and counts control messages. sharingTransport does the
// same for a Transport and its data messages.
type watched struct {
	elastic.Network
	x *actor
}

func (w watched) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	w.x.sending()
	if w.x.muted.Load() {
		return nil
	}
	return w.Network.Send(ctx, to, msg)
}

func (w watched) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := w.Network.Connect(ctx, v, self)
	if err != nil {
		return nil, err
	}
	s := sharingTransport{t, w.x, nil}
	if b := w.x.arena.boards; b != nil {
		s.shared = b.of(v, self, w.x)
	}
	return s, nil
}

// Signal counts the notes of the process, and loses or kills as the test says.
func (s sharingTransport) Signal(to int, msg []byte) {
	if len(msg) > 0 && msg[0] == noteSignal {
		n := s.x.notes.Add(1)
		if n == s.x.killAtNote.Load() {
			s.x.kindAtKill.Store(int64(msg[1]))
			s.x.kill()
		}
		if lost := s.x.losing.Load(); s.x.killed.Load() || lost > 0 && n%lost == 0 {
			return
		}
	}
	s.Transport.Signal(to, msg)
}

// noteSignal is the first byte of a signal that carries a note (collective.Notes).
const noteSignal = 3

type sharingTransport struct {
	transport.Transport
	x      *actor
	shared *transport.Shared // on boards
}

func (s sharingTransport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	s.x.sending()
	return s.Transport.Send(ctx, to, e, buf)
}

// Shared returns the shared memory of the wrapped transport, or the words on boards, or nil if there is none.
func (t sharingTransport) Shared() *transport.Shared {
	if t.shared != nil {
		return t.shared
	}
	if s, ok := t.Transport.(transport.Sharer); ok {
		return s.Shared()
	}
	return nil
}

// check checks the invariants that hold after any pattern of deaths. The survivors have finished with equal results. All members
// had equal parameters after every step. Every microbatch was contributed once, and none was computed twice.
func (a *arena) check(t *testing.T, about string) (sha string) {
	t.Helper()
	digests := make(map[int64]string)
	for _, x := range a.actors {
		for _, s := range x.steps {
			if d, there := digests[s.Step]; there && d != s.Digest {
				t.Errorf("%s: %s has the digest %s after step %d, others %s", about, x.self.ID, s.Digest, s.Step, d)
			}
			digests[s.Step] = s.Digest
		}
		if x.killed.Load() {
			continue
		}
		if x.err != nil || x.result == nil {
			t.Fatalf("%s: %s: error %v, result %v", about, x.self.ID, x.err, x.result)
		}
		if sha != "" && x.result.SHA256 != sha {
			t.Errorf("%s: %s has other weights than those before it", about, x.self.ID)
		}
		sha = x.result.SHA256
		for _, s := range x.steps {
			if s.Recomputed != 0 {
				t.Errorf("%s: %s computed %d microbatches of step %d again", about, x.self.ID, s.Recomputed, s.Step)
			}
		}
	}
	a.ledger(t, about)
	a.tiled(t, about)
	return sha
}

// checkTries checks that no member has begun a step twice. Members that join or leave by agreement do not interrupt a step.
func (a *arena) checkTries(t *testing.T, about string) {
	t.Helper()
	for _, x := range a.actors {
		for step, n := range x.tries {
			if n != 1 {
				t.Errorf("%s: %s has begun step %d %d times", about, x.self.ID, step, n)
			}
		}
	}
}

// steps returns the number of steps of the job. A job whose batch grows has as many as its result tells.
func (a *arena) steps() int64 {
	if a.cfg.Growth.Max == 0 {
		return a.cfg.Steps
	}
	for _, x := range a.actors {
		if x.result != nil {
			return x.result.Steps
		}
	}
	return 0
}

// microbatches returns the number of microbatches of a step. If the batch grows, the reports of the step tell it.
func (a *arena) microbatches(step int64) int {
	c := a.cfg
	if c.Growth.Max > 0 {
		for _, e := range a.events.events {
			if s, ok := e.Body.(event.Step); ok && e.Step == step {
				return (s.Samples + c.Microbatch - 1) / c.Microbatch
			}
		}
		return 1 // which the log does not have
	}
	perPass := int64((c.Samples + c.GlobalBatch - 1) / c.GlobalBatch)
	left := c.Samples - int((step-1)%perPass)*c.GlobalBatch
	return (min(left, c.GlobalBatch) + c.Microbatch - 1) / c.Microbatch
}

// ledger checks that the event logs of all members together have each microbatch of each step exactly once. Several reports of a
// dead member's part count as one report.
func (a *arena) ledger(t *testing.T, about string) {
	t.Helper()
	type part struct {
		step int64
		peer string
	}
	parts := make(map[part][][2]int)
	note := func(p part, ranges [][2]int) {
		if old, there := parts[p]; there && len(ranges) > 0 && len(old) > 0 && !slices.Equal(old, ranges) {
			t.Errorf("%s: step %d: %s contributed %v, and %v", about, p.step, p.peer, old, ranges)
		}
		if len(ranges) > 0 {
			parts[p] = ranges
		}
	}
	for _, e := range a.events.events {
		s, ok := e.Body.(event.Step)
		if !ok {
			continue
		}
		note(part{e.Step, e.Peer}, s.Microbatches)
		for _, c := range s.OfLost {
			note(part{c.Step, c.Peer}, c.Microbatches)
		}
	}
	for step := int64(1); step <= a.steps(); step++ {
		seen := make([]int, a.microbatches(step))
		for p, ranges := range parts {
			for _, r := range ranges {
				for k := r[0]; k < r[1] && p.step == step; k++ {
					seen[k]++
				}
			}
		}
		for k, n := range seen {
			if n != 1 {
				t.Errorf("%s: microbatch %d of step %d is in the log %d times: %v", about, k, step, n, parts)
				return
			}
		}
	}
}
