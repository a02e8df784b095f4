package hangs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// field is a job of some members over a network in virtual time, for use in a synctest bubble.
type field struct {
	network  *simnet.Network
	random   *rand.Rand
	members  []*member
	culprit  *member
	informs  bool // the launcher tells how the culprit's process has ended
	recovers bool // and has recovered its calls
	commits  bool // the members commit steps, which newcomers copy
	cost     collective.Cost
	first    []elastic.Member // of the first view
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// member is one process of the job.
type member struct {
	elastic.Member
	field  *field
	group  *elastic.Group
	ctx    context.Context
	mood   atomic.Int32           // what goes wrong in its next step, one of the constants; 0 for nothing
	end    atomic.Pointer[string] // how its process has ended; nil while it runs
	halted atomic.Bool
	short  atomic.Bool // it has told of a lost quorum that is not back
	parked atomic.Bool
	count  count
	left   atomic.Pointer[flight.Record] // what its launcher recovers after its end
}

// What can go wrong in a step.
const (
	absent = iota + 1
	otherCall
	otherLength
	otherOrder
	deadlock
	panics
	fails
	deadLoop
)

const length = 2000 // elements of a vector

// newField returns a job of three to five members that is determined by a seed.
func newField(seed uint64) *field {
	f := &field{random: rand.New(rand.NewPCG(seed, 7))}
	f.network = simnet.New(simnet.Config{Seed: seed,
		Link: simnet.Link{Delay: 200 * time.Microsecond, Lag: 300 * time.Microsecond, Loss: 0.01, Duplicate: 0.01, Reorder: 0.01}})
	if f.random.IntN(2) == 0 {
		f.cost = collective.Cost{Alpha: 1e-9, Beta: 1e-9, Gamma: 1e-9} // selects rings; the default selects exchanges between pairs
	}
	for i := range 3 + f.random.IntN(3) {
		f.members = append(f.members, &member{Member: elastic.Member{ID: elastic.ID(fmt.Sprintf("member-%d", i)), Index: i}, field: f})
	}
	f.culprit = f.members[f.random.IntN(len(f.members))]
	f.informs, f.recovers = f.random.IntN(2) == 0, f.random.IntN(2) == 0
	return f
}

// start starts the programs of all members.
func (f *field) start(t *testing.T) {
	f.ctx, f.cancel = context.WithCancel(t.Context())
	for _, m := range f.members {
		f.first = append(f.first, m.Member)
	}
	for _, m := range f.members {
		m.start(elastic.Config{Peers: f.first})
	}
}

// start starts the program of a member.
func (m *member) start(cfg elastic.Config) {
	m.ctx = m.field.ctx
	cfg.Endpoint, cfg.Sink, cfg.Started = m.field.network.Endpoint(m.Member), m, func(g *elastic.Group) { m.group = g }
	cfg.Comm = collective.Options{Cost: m.field.cost}
	m.field.running.Go(func() { m.run(cfg) })
}

// stop ends the job.
func (f *field) stop(t *testing.T) {
	f.cancel()
	if err := f.network.Close(); err != nil {
		t.Error(err)
	}
	f.running.Wait()
}

// run is the main function of the process.
func (m *member) run(cfg elastic.Config) {
	g, err := elastic.Join(m.ctx, cfg)
	if err != nil {
		return
	}
	defer g.Close()
	g.Sessions().Hold(&m.count, nil)
	for epoch := uint64(0); m.ctx.Err() == nil; {
		s, err := g.Sessions().Next(m.ctx, epoch)
		if err != nil {
			break
		}
		epoch = s.View.Epoch
		if errors.Is(m.session(s), collective.ErrMistake) {
			break
		}
	}
	<-m.ctx.Done() // the group answers until then
}

// Emit implements event.Sink.
func (m *member) Emit(e event.Event) {
	switch b := e.Body.(type) {
	case event.Quorum:
		m.short.Store(b.State != "back")
	case event.Parked:
		m.parked.Store(b.Who == m.ID.Short())
	}
}

// count is the state of the members, the number of steps. It parks every newcomer.
type count struct{ steps atomic.Int64 }

// Step implements elastic.State.
func (c *count) Step() int64 { return c.steps.Load() }

// Save implements elastic.State.
func (c *count) Save(w io.Writer) error { return binary.Write(w, binary.LittleEndian, c.Step()) }

// Load implements elastic.State.
func (c *count) Load(r io.Reader) error {
	var steps int64
	err := binary.Read(r, binary.LittleEndian, &steps)
	c.steps.Store(steps)
	return err
}

// Admit implements elastic.Judge.
func (c *count) Admit(elastic.Application) error {
	return errors.New("the job is faster without the newcomer")
}

// session makes calls on three communicators until one fails.
func (m *member) session(s *elastic.Session) (err error) {
	defer func() {
		if recover() != nil { // the process would end
			m.ends("status 2")
			err = collective.ErrMistake
		}
	}()
	other, err := collective.Dup(m.ctx, s.Comm)
	if err != nil {
		return err
	}
	bucket := s.Comm.With(collective.CallOptions{For: "bucket 1 of 1"})
	for {
		m.wait(20 * time.Millisecond)
		if err := m.step(s.Comm, bucket, other); err != nil {
			return err
		}
		if m.field.commits {
			if err := m.group.Sessions().Committed(m.count.steps.Add(1)); err != nil {
				return err
			}
		}
	}
}

// step makes the calls of a step.
func (m *member) step(c, bucket, other *collective.Comm) error {
	mood := m.mood.Swap(0)
	v, w := make([]float32, length), make([]float32, 10)
	sum := collective.Sum[float32]
	switch mood {
	case absent:
		m.wait(time.Hour)
	case otherCall:
		return collective.Broadcast(m.ctx, c, v, 0)
	case otherLength:
		v = v[:length-1]
	case panics:
		sum = collective.NewOp("sum", true, func(dst, a, b []float32) { panic("a bug of the program") })
	case fails:
		err := os.WriteFile("/dev/full", []byte{1}, 0o600) // a disk that is full
		m.ends(fmt.Sprintf("status 1 save checkpoint: %v", err))
		return collective.ErrMistake
	case deadlock:
		if err := collective.AllReduce(m.ctx, other, w, w, sum); err != nil {
			return err
		}
	}
	if err := collective.AllReduce(m.ctx, bucket, v, v, sum); err != nil {
		return err
	}
	if mood == panics {
		panic("the algorithm of the call has not reduced at this rank")
	}
	if err := collective.AllReduce(m.ctx, other, w, w, sum); err != nil {
		return err
	}
	calls := []*collective.Handle{nil, nil}
	order := []int{0, 1}
	if mood == otherOrder {
		slices.Reverse(order)
	}
	for _, i := range order {
		v := make([]float32, 100+i)
		calls[i] = collective.IAllReduce(m.ctx, c, v, v, sum)
		if mood == deadLoop {
			m.wait(time.Hour) // a loop would stop virtual time
		}
	}
	if err := collective.WaitAll(m.ctx, calls...); err != nil {
		return err
	}
	return collective.Barrier(m.ctx, c)
}

// ends ends the process of the member.
func (m *member) ends(how string) {
	if m.end.CompareAndSwap(nil, &how) && m.group != nil {
		left := m.group.Admin().Calls()
		left.Ended = true
		m.left.Store(&left)
	}
	m.field.network.Kill(m.ID)
}

// wait lets time pass in the program of the member.
func (m *member) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.ctx.Done():
	}
}

// judge takes the records of the members that can answer, and judges them.
func (f *field) judge(t *testing.T) flight.Finding {
	about := flight.Job{Version: flight.Version, Taken: time.Now()}
	var records []flight.Record
	for _, m := range f.members {
		p := flight.Peer{ID: m.ID.Short(), Index: m.Index, Rank: -1}
		end := m.end.Load()
		switch {
		case end != nil || m.halted.Load():
			if !f.informs {
				continue
			}
			if p.Halted = end == nil; p.Halted {
				p.Error = "no answer within 2s"
			} else {
				p.End = *end
			}
			if left := m.left.Load(); left != nil && m.field.recovers {
				records = append(records, passed(t, *left))
			}
		default:
			r := m.group.Admin().Calls()
			r.Needs = m.short.Load()
			records = append(records, passed(t, r))
			p.Answered = true
			if m.parked.Load() {
				p.State = "parked"
			}
		}
		about.Peers = append(about.Peers, p)
	}
	return flight.Judge(about, records)
}

// passed passes a record through its JSON form.
func passed(t *testing.T, r flight.Record) flight.Record {
	text, err := json.Marshal(r)
	if err == nil {
		r, err = flight.DecodeRecord(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}
