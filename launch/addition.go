package launch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// additions connects hosts that are added while the job runs. The launcher's loop owns it, as it
// owns the hostList; each connection attempt has a goroutine of its own, which ends with ctx.
type additions struct {
	plan    hostPlan
	orphans *orphanage
	ctx     context.Context // ends the attempts
	cancel  context.CancelFunc
	work    sync.WaitGroup
	arrival chan addition
	pending map[string]*addition // by name of the host
}

// addition is a host that a user asked for, and the result of the attempt to connect to it.
type addition struct {
	host  *remoteHost
	order scaleOrder
	from  int // index of the peer that passed on the order
	err   error

	begun    time.Time
	answered bool // the user has got an answer
}

// additionPatience is the longest wait of an order for its host before the user gets an answer.
// The attempt goes on after it.
const additionPatience = 5 * time.Second

// newAdditions returns additions without a pending host. The caller ends it with stop.
func newAdditions(p hostPlan, orphans *orphanage) *additions {
	a := &additions{plan: p, orphans: orphans, arrival: make(chan addition), pending: make(map[string]*addition)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// add begins to connect to the host of an order that the peer with index from passed on. The
// result is sent on arrival. A host that is being connected already is an error.
func (a *additions) add(o scaleOrder, from int) error {
	if _, err := addHost(nil, Host{Name: o.Host}); err != nil {
		return err
	}
	if a.pending[o.Host] != nil {
		return fmt.Errorf("host %s is being connected already", o.Host)
	}
	d := addition{host: newRemoteHost(Host{Name: o.Host, Slots: max(1, o.Peers)}, a.orphans), order: o, from: from, begun: time.Now()}
	a.pending[o.Host] = &d
	done := d
	a.work.Go(func() {
		done.err = done.host.connect(a.ctx, a.plan)
		select {
		case a.arrival <- done:
		case <-a.ctx.Done():
			if done.err == nil {
				done.host.hangUp()
			}
		}
	})
	return nil
}

// late returns the orders that have waited for their host for longer than additionPatience and
// have no answer yet, and marks them as answered.
func (a *additions) late(now time.Time) []addition {
	var out []addition
	for _, d := range a.pending {
		if !d.answered && now.Sub(d.begun) > additionPatience {
			d.answered = true
			out = append(out, *d)
		}
	}
	return out
}

// stop cancels the attempts and waits for them. It accepts a nil receiver, which has no attempts:
// DoctorHosts adds no hosts.
func (a *additions) stop() {
	if a == nil {
		return
	}
	a.cancel()
	a.work.Wait()
}
