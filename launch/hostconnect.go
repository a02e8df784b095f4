package launch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// hostConnects connects to hosts that are added while the job runs (elrun scale JOB HOST:N). The
// launcher's loop owns it, as it owns the hostList; each connection attempt has a goroutine of its
// own, which ends with ctx.
type hostConnects struct {
	plan    hostPlan
	orphans *childReaper
	ctx     context.Context // ends the attempts
	cancel  context.CancelFunc
	work    sync.WaitGroup
	// results passes the finished attempts to the launcher's loop.
	results chan hostConnect
	pending map[string]*hostConnect // by name of the host
}

// hostConnect is a host that a user asked for, and the result of the attempt to connect to it.
type hostConnect struct {
	host  *remoteHost
	order scaleOrder
	from  int // index of the peer that passed on the order
	err   error

	begun    time.Time
	answered bool // the user has got an answer
}

// answerDelay is how long an order waits for its host before the user gets an answer. The attempt
// to connect goes on after the answer.
const answerDelay = 5 * time.Second

// newHostConnects returns hostConnects without a pending host. The caller ends it with stop.
func newHostConnects(p hostPlan, orphans *childReaper) *hostConnects {
	a := &hostConnects{plan: p, orphans: orphans, results: make(chan hostConnect), pending: make(map[string]*hostConnect)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// add begins to connect to the host of an order. from is the index of the peer that passed the
// order on. The result is sent on results. It is an error if the host is already being connected.
func (a *hostConnects) add(o scaleOrder, from int) error {
	if _, err := addHost(nil, Host{Name: o.Host}); err != nil {
		return err
	}
	if a.pending[o.Host] != nil {
		return fmt.Errorf("host %s is being connected already", o.Host)
	}
	d := hostConnect{host: newRemoteHost(Host{Name: o.Host, Slots: max(1, o.Peers)}, a.orphans), order: o, from: from, begun: time.Now()}
	a.pending[o.Host] = &d
	// The goroutine works on a copy: the loop changes the entry in pending while the attempt runs.
	done := d
	a.work.Go(func() {
		done.err = done.host.connect(a.ctx, a.plan)
		select {
		case a.results <- done:
		case <-a.ctx.Done():
			// The job has ended meanwhile: nobody else would end the agent of this connection.
			if done.err == nil {
				done.host.hangUp()
			}
		}
	})
	return nil
}

// overdue returns the orders that have waited for their host for longer than answerDelay and
// have no answer yet, and marks them as answered.
func (a *hostConnects) overdue(now time.Time) []hostConnect {
	var out []hostConnect
	for _, d := range a.pending {
		if !d.answered && now.Sub(d.begun) > answerDelay {
			d.answered = true
			out = append(out, *d)
		}
	}
	return out
}

// stop cancels the attempts and waits for them. It accepts a nil receiver, which has no attempts:
// DoctorHosts adds no hosts.
func (a *hostConnects) stop() {
	if a == nil {
		return
	}
	a.cancel()
	a.work.Wait()
}
