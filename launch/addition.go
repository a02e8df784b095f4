package launch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// additions are hosts that are being connected while the job runs. The launcher's loop owns
// them, as it owns the hostList.
type additions struct {
	plan    hostPlan
	orphans *orphanage
	ctx     context.Context // ends the attempts
	cancel  context.CancelFunc
	work    sync.WaitGroup
	arrival chan addition
	pending map[string]*addition // by name of the host
}

// addition is a host that a user has asked for, and how the attempt to connect it ended.
type addition struct {
	host  *remoteHost
	order scaleOrder
	from  int // index of the peer that has passed on the order
	err   error

	begun    time.Time
	answered bool // the order has an answer
}

// additionPatience is how long an order waits for its host before it is answered.
const additionPatience = 5 * time.Second

func newAdditions(p hostPlan, orphans *orphanage) *additions {
	a := &additions{plan: p, orphans: orphans, arrival: make(chan addition), pending: make(map[string]*addition)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// add begins to connect the host of an order. The result comes on arrival.
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

// late returns the orders that have waited long enough for their hosts.
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

// stop ends the attempts and waits for them. A nil receiver has none: nothing is added to the
// hosts of DoctorHosts.
func (a *additions) stop() {
	if a == nil {
		return
	}
	a.cancel()
	a.work.Wait()
}
