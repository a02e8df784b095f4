package hosts

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Connects connects to hosts that are added while the job runs (elrun scale JOB HOST:N). The
// launcher's loop owns it, as it owns the List; each connection attempt has a goroutine of its
// own, which ends with ctx.
type Connects struct {
	plan    Plan
	orphans *proc.ChildReaper
	ctx     context.Context // ends the attempts
	cancel  context.CancelFunc
	work    sync.WaitGroup
	// results passes the finished attempts to the launcher's loop.
	results chan Connect
	pending map[string]*Connect // by name of the host
}

// Connect is a host that a user asked for, and the result of the attempt to connect to it.
type Connect struct {
	Host  *Host
	Order wire.ScaleOrder
	From  int // index of the peer that passed on the order
	Err   error

	begun    time.Time
	answered bool // the user has got an answer
}

// answerDelay is how long an order waits for its host before the user gets an answer. The attempt
// to connect goes on after the answer.
const answerDelay = 5 * time.Second

// NewConnects returns Connects without a pending host. The caller ends it with stop.
func NewConnects(p Plan, orphans *proc.ChildReaper) *Connects {
	a := &Connects{plan: p, orphans: orphans, results: make(chan Connect), pending: make(map[string]*Connect)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// add begins to connect to the host of an order. from is the index of the peer that passed the
// order on. The result is sent on results. It is an error if the host is already being connected.
func (c *Connects) add(o wire.ScaleOrder, from int) error {
	if _, err := spec.AddHost(nil, spec.Host{Name: o.Host}); err != nil {
		return err
	}
	if c.pending[o.Host] != nil {
		return fmt.Errorf("host %s is being connected already", o.Host)
	}
	d := Connect{Host: NewHost(spec.Host{Name: o.Host, Slots: max(1, o.Peers)}, c.orphans), Order: o, From: from, begun: time.Now()}
	c.pending[o.Host] = &d
	// The goroutine works on a copy: the loop changes the entry in pending while the attempt runs.
	done := d
	c.work.Go(func() {
		done.Err = done.Host.Connect(c.ctx, c.plan)
		select {
		case c.results <- done:
		case <-c.ctx.Done():
			// The job has ended meanwhile: nobody else would end the agent of this connection.
			if done.Err == nil {
				done.Host.hangUp()
			}
		}
	})
	return nil
}

// overdue returns the orders that have waited for their host for longer than answerDelay and
// have no answer yet, and marks them as answered.
func (c *Connects) overdue(now time.Time) []Connect {
	var out []Connect
	for _, d := range c.pending {
		if !d.answered && now.Sub(d.begun) > answerDelay {
			d.answered = true
			out = append(out, *d)
		}
	}
	return out
}

// stop cancels the attempts and waits for them. It accepts a nil receiver, which has no attempts:
// DoctorHosts adds no hosts.
func (c *Connects) stop() {
	if c == nil {
		return
	}
	c.cancel()
	c.work.Wait()
}
