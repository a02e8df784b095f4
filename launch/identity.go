package launch

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// network is what identity needs of a host besides an elastic.Endpoint: p2p.Host.
type network interface {
	Prove(ctx context.Context, m elastic.Member, c ticket.Credential) error
	Identify(ctx context.Context, addr string) (elastic.Member, error)
	Forget(elastic.ID)
	Discover(ctx context.Context, found func(elastic.Member)) error
	MapPorts(ctx context.Context, told func(error))
	Contacts(ctx context.Context, of elastic.ID) ([]elastic.Member, error)
}

// identity is one ID of this process on the network: the endpoint of a host, and what a
// newcomer has to do before members talk to it. It is the elastic.Network of the
// group's endpoint.
//
// A member of the first view is known to all others from the start. A newcomer proves
// itself to each member that it hears of before it sends the first message there; once
// it is in a view all members have been told of it.
type identity struct {
	elastic.Network // of the endpoint: it does what is not done below
	ep              elastic.Endpoint
	net             network
	entered         func(elastic.View) // is told of each view before it is connected

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // proofs and discovery

	mu         sync.Mutex
	credential ticket.Credential            // shown to members
	barred     map[elastic.ID]bool          // forgotten, or about to be
	inside     bool                         // all members know this ID
	shown      map[elastic.ID]chan struct{} // closed when the proof was shown, or could not be
	provenTo   elastic.ID                   // the last to whom the proof was shown
	public     bool                         // it is advertised on the local network
	closed     bool
}

// provePeriod is how long one member may take to be reached by a newcomer.
const provePeriod = 10 * time.Second

// newIdentity takes over ep.
func newIdentity(ep elastic.Endpoint, n network, entered func(elastic.View)) *identity {
	i := &identity{Network: ep.Network, ep: ep, net: n, entered: entered, shown: make(map[elastic.ID]chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// endpoint returns the identity as what elastic needs of a network.
func (i *identity) endpoint() elastic.Endpoint {
	return elastic.Endpoint{Self: i.ep.Self, Network: i, Keys: i.ep.Keys, Close: i.Close}
}

// belong makes this identity one that all members know from the start.
func (i *identity) belong(members []elastic.Member) error {
	i.mu.Lock()
	i.inside = true
	i.mu.Unlock()
	return i.Network.Introduce(members)
}

// discover advertises this identity on the local network, once, and lets found know of
// others that do the same for the job, who may be anybody. failed is told why that ends early.
func (i *identity) discover(found func(elastic.Member), failed func(error)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.public || i.closed {
		return
	}
	i.public = true
	i.work.Go(func() {
		err := i.net.Discover(i.ctx, found)
		i.mu.Lock()
		i.public = false
		i.mu.Unlock()
		if i.ctx.Err() == nil {
			failed(err)
		}
	})
}

// mapPorts has the router pass on what comes for this identity. told is told what has come of it.
func (i *identity) mapPorts(told func(error)) {
	i.work.Go(func() { i.net.MapPorts(i.ctx, told) })
}

// equip sets what the identity shows to members from now on.
func (i *identity) equip(c ticket.Credential) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.credential = c
}

// forgetAfter is how long peers that were kicked keep their connections, so that they can be
// told.
const forgetAfter = time.Second

// bar takes the connections of peers that were kicked, in a while, and refuses them.
func (i *identity) bar(ids []elastic.ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		if i.barred[id] || i.closed {
			continue
		}
		if i.barred == nil {
			i.barred = make(map[elastic.ID]bool)
		}
		i.barred[id] = true
		i.work.Go(func() {
			timer := time.NewTimer(forgetAfter)
			defer timer.Stop()
			select {
			case <-timer.C:
				i.net.Forget(id)
			case <-i.ctx.Done():
			}
		})
	}
}

// Introduce implements elastic.Network. Members to whom this identity has to prove itself
// are introduced when it has.
func (i *identity) Introduce(members []elastic.Member) error {
	var known []elastic.Member
	i.mu.Lock()
	for _, m := range members {
		if i.inside || m.ID == i.ep.Self.ID {
			known = append(known, m)
			continue
		}
		if i.shown[m.ID] == nil && !i.closed {
			done := make(chan struct{})
			i.shown[m.ID] = done
			credential := i.credential
			i.work.Go(func() {
				defer close(done)
				i.show(m, credential)
			})
		}
	}
	i.mu.Unlock()
	return i.Network.Introduce(known)
}

// show proves this identity to a member. If that fails nothing is known of the member,
// which whoever sends to it will find, and the next Introduce tries again.
func (i *identity) show(m elastic.Member, c ticket.Credential) {
	ctx, cancel := context.WithTimeout(i.ctx, provePeriod)
	defer cancel()
	err := i.net.Prove(ctx, m, c)
	i.mu.Lock()
	by := i.provenTo
	if err == nil {
		i.provenTo = m.ID
	} else {
		delete(i.shown, m.ID)
	}
	i.mu.Unlock()
	if err != nil && by != "" {
		i.askFor(by)
	}
}

// askFor asks a member where the others listen now: a host may have got another address since
// the view that names it.
func (i *identity) askFor(by elastic.ID) {
	ctx, cancel := context.WithTimeout(i.ctx, provePeriod)
	defer cancel()
	_, _ = i.net.Contacts(ctx, by) // the next proof fails as this one, if it has not helped
}

// wait returns when a proof to the member is over, or with ctx's end.
func (i *identity) wait(ctx context.Context, to elastic.ID) error {
	i.mu.Lock()
	done := i.shown[to]
	i.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("prove to %s: %w", to.Short(), context.Cause(ctx))
	}
}

// Send implements elastic.Network.
func (i *identity) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	if err := i.wait(ctx, to); err != nil {
		return err
	}
	return i.Network.Send(ctx, to, msg)
}

// Connect implements elastic.Network.
func (i *identity) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	if err := i.belong(v.Members); err != nil {
		return nil, err
	}
	i.entered(v)
	return i.Network.Connect(ctx, v, self)
}

// Request implements elastic.Network.
func (i *identity) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	if err := i.wait(ctx, to); err != nil {
		return nil, err
	}
	return i.Network.Request(ctx, to, request)
}

// Close takes the identity off the network.
func (i *identity) Close() error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.cancel()
	err := i.ep.Close()
	i.work.Wait()
	return err
}
