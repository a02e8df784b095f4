package stalls

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// field is a job of some members over a network in virtual time, for use in a synctest bubble.
type field struct {
	network *simnet.Network
	random  *rand.Rand
	members []*member
	culprit *member
	cost    collective.Cost
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	watch   func(event.Event) // called with each event; nil for none
	events  []event.Event
	onset   time.Time // when the cause began; zero before
	started chan struct{}
}

// member is one process of the job.
type member struct {
	elastic.Member
	field *field
	group *elastic.Group
	model *model
	ctx   context.Context
	pace  float64 // factor of the computing time

	mu    sync.Mutex
	snare *snare
}

// snare holds its member when the member reaches a place.
type snare struct {
	at   place
	d    time.Duration
	busy string // argument of Group.Busy meanwhile; empty for no call
}

// place is a place at which a member can be held.
type place int

const (
	computing place = iota + 1 // in the middle of a microbatch
	beginning                  // in a step, while the previous step is not committed
	reporting                  // in Hooks.OnStep
)

// newField returns a job of four or five members that is determined by a seed.
func newField(seed uint64) *field { return newFieldOf(0, seed) }

// newFieldOf returns a job of a number of members, 0 for four or five.
func newFieldOf(size int, seed uint64) *field {
	f := &field{random: rand.New(rand.NewPCG(seed, 1)), started: make(chan struct{})}
	f.network = simnet.New(simnet.Config{Seed: seed,
		Link: simnet.Link{Delay: 200 * time.Microsecond, Lag: 300 * time.Microsecond, Loss: 0.01, Duplicate: 0.01, Reorder: 0.01}})
	if f.random.IntN(2) == 0 {
		f.cost = collective.Cost{Alpha: 1e-9, Beta: 1e-9, Gamma: 1e-9} // selects rings; the default selects exchanges between pairs
	}
	few := 4 + f.random.IntN(2)
	for i := range cmp.Or(size, few) {
		m := &member{Member: elastic.Member{ID: elastic.ID(fmt.Sprintf("member-%d", i)), Index: i}, field: f, pace: 1}
		m.model = newModel(m, rand.New(rand.NewPCG(seed, uint64(i)+2)))
		f.members = append(f.members, m)
	}
	f.culprit = f.members[f.random.IntN(len(f.members))]
	return f
}

// start starts training at all members.
func (f *field) start(t *testing.T) {
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(t.Context())
	var first []elastic.Member
	for _, m := range f.members {
		first = append(first, m.Member)
	}
	for _, m := range f.members {
		m.ctx = ctx
		f.running.Go(func() { m.run(first) })
	}
}

// stop ends the job.
func (f *field) stop(t *testing.T) {
	f.cancel()
	if err := f.network.Close(); err != nil {
		t.Error(err)
	}
	f.running.Wait()
}

// run is the main function of the process. Its error does not matter, because the test ends the job early.
func (m *member) run(first []elastic.Member) {
	g, err := elastic.Join(m.ctx, elastic.Config{Endpoint: m.field.network.Endpoint(m.Member), Peers: first, Sink: m.field,
		Comm: collective.Options{Cost: m.field.cost}})
	if err != nil {
		return
	}
	defer g.Close()
	m.group = g
	_ = trainer.Run(m.ctx, g, m.model.trained(), trainer.Config{
		Samples: 4000, GlobalBatch: 2 * len(first), Microbatch: 1, Steps: 1 << 30, Seed: 3, Gradients: trainer.Gradients{BucketBytes: bucketBytes},
		Optimizer: optim.SGD{}, Schedule: optim.Constant(0.1),
		Hooks: trainer.Hooks{OnBegin: func(int64) { m.model.begin() }, OnStep: func(trainer.StepReport) { m.pass(reporting) }},
	})
}

// Emit implements event.Sink.
func (f *field) Emit(e event.Event) {
	f.mu.Lock()
	f.events = append(f.events, e)
	watch := f.watch
	f.mu.Unlock()
	if watch != nil {
		watch(e)
	}
}

// log returns the events of all members so far.
func (f *field) log() []event.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// sets records that the cause begins.
func (f *field) sets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onset.IsZero() {
		f.onset = time.Now()
		close(f.started)
	}
}

// holds sets the snare of the member.
func (m *member) holds(s snare) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snare = &s
}

// pass is called by the member at each place where it can be held.
func (m *member) pass(at place) {
	m.mu.Lock()
	s := m.snare
	caught := s != nil && s.at == at
	if caught {
		m.snare = nil
	}
	m.mu.Unlock()
	if !caught {
		return
	}
	m.field.sets()
	if s.busy != "" {
		defer m.group.Busy(s.busy)()
	}
	m.wait(s.d)
}

// wait lets time pass in the program's code of the member.
func (m *member) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.ctx.Done():
	}
}
