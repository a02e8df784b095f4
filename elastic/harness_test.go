package elastic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mem"
)

func TestMain(m *testing.M) {
	flag.Bool("long", false, "the long forms: more times at which a peer is slow")
	flag.Int("many", 200, "members of the group of TestGroupOfMany")
	flag.Float64("minutes", 0.05, "minutes of churn in TestGroupOfMany, of its virtual time")
	goleak.VerifyTestMain(m)
}

// record is a sink that keeps all events.
type record struct {
	mu  sync.Mutex
	all []event.Event
}

func (r *record) Emit(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

// of returns the events with a name.
func (r *record) of(name string) []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []event.Event
	for _, e := range r.all {
		if e.Body.Name() == name {
			some = append(some, e)
		}
	}
	return some
}

// patience bounds operations that must not hang, in virtual time.
const patience = 10 * time.Minute

// peers are the members of a group and their simulated network.
type peers struct {
	network *mem.Network
	sink    *record
	members []elastic.Member
	adjust  func(i int, cfg *elastic.Config) // changes a member's Config; may be nil
}

func newPeers(n int) *peers {
	p := &peers{network: mem.NewNetwork(), sink: new(record)}
	for i := range n {
		p.members = append(p.members, elastic.Member{ID: elastic.ID(fmt.Sprintf("peer-of-rank-%d", i)), Index: i})
	}
	return p
}

// config returns the Config of member i from a launcher with the given first view.
func (p *peers) config(i int, first []elastic.Member) elastic.Config {
	cfg := elastic.Config{Endpoint: p.network.Endpoint(p.members[i]), Peers: first, Sink: p.sink}
	if p.adjust != nil {
		p.adjust(i, &cfg)
	}
	return cfg
}

// late returns the Config of a newcomer with the given members as contacts.
func (p *peers) late(self elastic.Member, contacts ...elastic.Member) elastic.Config {
	return elastic.Config{Endpoint: p.network.Endpoint(self), Sink: p.sink,
		Contacts: func() []elastic.Member { return contacts }}
}

// each calls f for every member concurrently, and returns the errors.
func (p *peers) each(t *testing.T, f func(ctx context.Context, i int) error) []error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make([]error, len(p.members))
	var all sync.WaitGroup
	for i := range p.members {
		all.Go(func() { errs[i] = f(ctx, i) })
	}
	all.Wait()
	if err := p.network.Close(); err != nil {
		t.Error(err)
	}
	return errs
}

// joined is like each, for members that have joined; they leave after f.
func (p *peers) joined(t *testing.T, f func(ctx context.Context, g *elastic.Group, s *elastic.Session) error) []error {
	return p.each(t, func(ctx context.Context, i int) error {
		g, err := elastic.Join(ctx, p.config(i, p.members))
		if err != nil {
			return err
		}
		s, err := g.Sessions().Next(ctx, 0)
		if err == nil {
			err = f(ctx, g, s)
		}
		return errors.Join(err, g.Close(), g.Close())
	})
}

// want returns nil if err wraps target, and otherwise an error that shows both.
func want(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return fmt.Errorf("got %v, want %v", err, target)
}

// counter is a State that detects a step that is missing or counted twice: it holds the sum of the
// squares of the committed steps. The field pad enlarges the state.
type counter struct {
	step, sum int64
	pad       []byte
	loads     int // number of whole states loaded
	applies   int // number of updates applied
}

func (c *counter) Step() int64 { return c.step }

// commit commits one step.
func (c *counter) commit() {
	c.step++
	c.sum += c.step * c.step
}

// right returns an error if the sum does not match the steps.
func (c *counter) right() error {
	n := c.step
	if want := n * (n + 1) * (2*n + 1) / 6; c.sum != want {
		return fmt.Errorf("sum %d after %d steps, want %d", c.sum, n, want)
	}
	return nil
}

func (c *counter) Save(w io.Writer) error {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(c.step)), uint64(c.sum))
	_, err := w.Write(append(b, c.pad...))
	return err
}

func (c *counter) Load(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err == nil && len(b) < 16 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	c.loads++
	c.step, c.sum = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	c.pad = slices.Clone(b[16:])
	return nil
}

// replayer is a counter that can apply updates.
type replayer struct{ counter }

func (r *replayer) Update(w io.Writer) error {
	return binary.Write(w, binary.LittleEndian, r.step)
}

func (c *replayer) Apply(r io.Reader) error {
	var step int64
	if err := binary.Read(r, binary.LittleEndian, &step); err != nil {
		return err
	}
	if step != c.step+1 {
		return fmt.Errorf("an update of step %d after step %d", step, c.step)
	}
	c.applies++
	c.commit()
	return nil
}

// loop is a training loop that counts: in every step each member contributes a one, so the sum is
// the number of contributions.
type loop struct {
	g     *elastic.Group
	state interface {
		elastic.State
		commit()
		right() error
	}
	until  int64
	pause  time.Duration                  // duration of a step
	before func(step int64, epoch uint64) // called before each step; may be nil
	sizes  map[int]int                    // number of steps by size of the session
}

// run runs until the given number of steps is committed.
func (l *loop) run(ctx context.Context) error {
	l.sizes = make(map[int]int)
	for epoch := uint64(0); ; {
		s, err := l.g.Sessions().Next(ctx, epoch)
		if err != nil {
			return err
		}
		epoch = s.View.Epoch
		err = l.session(ctx, s)
		if err == nil || !errors.Is(err, collective.ErrRevoked) {
			return err
		}
	}
}

// session runs steps in one session. If it returns nil the job is done.
func (l *loop) session(ctx context.Context, s *elastic.Session) error {
	for l.state.Step() < l.until {
		if l.before != nil {
			l.before(l.state.Step()+1, s.View.Epoch)
		}
		if l.pause > 0 {
			<-time.After(l.pause)
		}
		one := []int64{1, l.state.Step()}
		if err := collective.AllReduce(ctx, s.Comm, one, one, collective.Sum[int64]); err != nil {
			return err
		}
		n := int64(s.Comm.Size())
		if one[0] != n || one[1] != n*l.state.Step() {
			return fmt.Errorf("step %d: %d of %d ranks, steps %d", l.state.Step()+1, one[0], n, one[1])
		}
		l.state.commit()
		l.sizes[int(n)]++
		if err := l.g.Sessions().Committed(l.state.Step()); err != nil {
			return err
		}
		if stop, err := s.Boundary(ctx); stop || err != nil {
			return errors.Join(err, errBoundary)
		}
		l.g.Sessions().Stable(l.state.Step())
	}
	return nil
}

// errBoundary leaves a session at a boundary.
var errBoundary = fmt.Errorf("boundary: %w", collective.ErrRevoked)
