package netchaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// orderVariable is the environment variable with the order of a member, as JSON.
const orderVariable = "NETCHAOS_ORDER"

// order configures a process with the role member, ringer, overlap or rounds. Such a process runs
// without elrun, because elrun has no flag for the rate at which a donor sends state. Members find
// each other by files in Dir, which all hosts see.
type order struct {
	Dir    string
	Index  int
	First  int // members of the first view; members with higher indices join later
	Rate   int // bytes per second of state that the member sends as a donor
	Params int
	Slots  int           // vectors of optimizer state for each parameter
	Pace   time.Duration // time for a microbatch
}

// state returns the size of the state in bytes.
func (o order) state() int { return 4 * o.Params * (1 + o.Slots) }

// takePart is the role member: it trains a model with a large state.
func takePart(ctx context.Context) error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(orderVariable)), &o); err != nil {
		return fmt.Errorf("%s: %w", orderVariable, err)
	}
	g, err := o.join(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	p := &paced{pace: o.Pace, vary: 1}
	return trainer.Run(ctx, g, p.slowed(bulky(o.Params)), trainer.Config{Samples: samples, GlobalBatch: microbatches * microbatch, Microbatch: microbatch,
		Balancing: trainer.Balancing{Admit: trainer.AdmitAlways},
		Steps:     endless, Optimizer: hoarder{o.Slots}, Schedule: optim.Constant(0.01)})
}

// join enters the first view of the group, or joins the running job.
func (o order) join(ctx context.Context) (*elastic.Group, error) {
	job := ticket.SignerOf(nil) // no secret, because the network has no other hosts
	policy := func(_ context.Context, id elastic.ID, r ticket.Request) ticket.Answer {
		return job.Admit(string(id), r)
	}
	host, err := p2p.Listen(ctx, p2p.Config{Job: "state", ListenAddrs: []string{"/ip4/0.0.0.0/tcp/0"}})
	if err != nil {
		return nil, err
	}
	self := elastic.Member{ID: host.ID(), Index: o.Index, Host: os.Getenv(hostVariable), Addrs: host.Addrs()}
	first, err := o.meet(ctx, self)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	sink, err := newSink(filepath.Join(o.Dir, fmt.Sprintf("events-%d.jsonl", o.Index)))
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	cfg := elastic.Config{Endpoint: host.Endpoint(self), StateRate: o.Rate, Sink: sink}
	if o.Index < o.First {
		// A member of the first view introduces the others before it sets an admission policy, so
		// that they connect as introduced members and not as newcomers.
		cfg.Peers = first
		err = host.Introduce(first)
		host.SetAdmission(policy)
	} else {
		cfg.Contacts = func() []elastic.Member { return first }
		host.SetAdmission(policy)
		for _, m := range first {
			err = errors.Join(err, host.Prove(ctx, m, job.Credential("state", ticket.Identity{}, string(host.ID()))))
		}
	}
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return elastic.Join(ctx, cfg)
}

// meet writes this member to a file, and returns the members of the first view from their files.
func (o order) meet(ctx context.Context, self elastic.Member) ([]elastic.Member, error) {
	b, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	path := func(i int) string { return filepath.Join(o.Dir, fmt.Sprintf("member-%d", i)) }
	if err := os.WriteFile(path(o.Index)+".new", b, 0o666); err != nil {
		return nil, err
	}
	if err := os.Rename(path(o.Index)+".new", path(o.Index)); err != nil {
		return nil, err
	}
	var first []elastic.Member
	for i := range o.First {
		var m elastic.Member
		if !process.Holds(ctx, limit, func() bool { b, err = os.ReadFile(path(i)); return err == nil }) {
			return nil, fmt.Errorf("wait for member %d: %w", i, err)
		}
		if err := json.Unmarshal(b, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", path(i), err)
		}
		first = append(first, m)
	}
	return first, nil
}

// sink writes events to a file, as elrun --events does.
type sink struct {
	mu sync.Mutex
	f  *os.File
}

// newSink returns a sink that writes to a new file.
func newSink(path string) (*sink, error) {
	f, err := os.Create(path)
	return &sink{f: f}, err
}

// Emit implements event.Sink.
func (s *sink) Emit(e event.Event) {
	b, err := json.Marshal(e)
	if err != nil {
		return // tests do not use events that cannot be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.f.Write(append(b, '\n'))
}

// bulky returns a model with a single parameter of n elements, whose gradient takes no time to compute.
func bulky(n int) trainer.Model {
	p := trainer.Param{Name: "p", Shape: []int{n}, Data: make([]float32, n)}
	return trainer.Model{Params: []trainer.Param{p}, Gradient: func(b *trainer.Batch) (float64, error) {
		grad, first := b.Grad(0), b.Samples()[0]
		for i := range grad {
			grad[i] += float32(i%97 - first%89)
		}
		return 1, nil
	}}
}

// hoarder is an optimizer with many state vectors. A step changes one of them. So the state is
// large, but the update of a step is small.
type hoarder struct{ slots int }

// Slots implements optim.Optimizer.
func (h hoarder) Slots() int { return h.slots }

// Check implements optim.Optimizer.
func (h hoarder) Check() error { return nil }

// Update implements optim.Optimizer. It stores the gradient in one of the vectors.
func (h hoarder) Update(step int64, rate float64, param, grad []float32, state [][]float32) {
	keep := state[step%int64(h.slots)]
	for i, g := range grad {
		param[i] -= float32(rate) * g
		keep[i] = g
	}
}
