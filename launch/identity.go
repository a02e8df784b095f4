package launch

import (
	"context"
	"errors"
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
	Prove(ctx context.Context, m elastic.Member, p ticket.Proof) (secret []byte, err error)
	Discover(ctx context.Context, found func(elastic.Member)) error
	Exchange(ctx context.Context, to elastic.ID, open bool) (changed bool, err error)
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

	mu     sync.Mutex
	proof  ticket.Proof                 // shown to members
	inside bool                         // all members know this ID
	shown  map[elastic.ID]chan struct{} // closed when the proof was shown, or could not be
	public bool                         // it is advertised on the local network
	closed bool
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

// introduceBy proves this identity to one of the members that are named, or of those that
// are found meanwhile, which it returns together with the job's secret. What is found
// may be anybody; only those named speak for the job when they refuse. An error is for the
// user to see.
func (i *identity) introduceBy(ctx context.Context, p ticket.Proof, named []elastic.Member,
	found func() []elastic.Member) (by elastic.Member, secret []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	a := asking{i: i, proof: p, asked: make(map[elastic.ID]bool), answers: make(chan answerToProof)}
	defer a.work.Wait()
	defer cancel()
	last := errors.New("no member is known")
	again := time.NewTicker(contactPeriod)
	defer again.Stop()
	for {
		a.ask(ctx, named, true)
		a.ask(ctx, found(), false)
		select {
		case r := <-a.answers:
			switch {
			case r.err == nil:
				i.equip(r.secret)
				// Members may listen at more addresses than their view says. Without them only
				// those that are found at these can be reached.
				_, _ = i.net.Exchange(ctx, r.by.ID, false)
				return r.by, r.secret, nil
			case errors.Is(r.err, ticket.ErrExpired), errors.Is(r.err, ticket.ErrWrong) && r.named:
				return by, nil, r.err
			}
			last = r.err
		case <-again.C:
		case <-ctx.Done():
			return by, nil, fmt.Errorf("%d members were asked and none has let this peer in (%w): %w",
				len(a.asked), context.Cause(ctx), last)
		}
	}
}

// asking is an introduceBy in progress.
type asking struct {
	i       *identity
	proof   ticket.Proof
	asked   map[elastic.ID]bool
	answers chan answerToProof
	work    sync.WaitGroup
	hints   []context.CancelFunc // end the attempts with those who were only found, oldest first
}

// answerToProof is what one Prove returned.
type answerToProof struct {
	by     elastic.Member
	secret []byte
	err    error
	named  bool
}

// ask asks those that have not been asked, all at once. Of those who were only found it
// gives up the oldest where there are too many: anybody can make up more.
func (a *asking) ask(ctx context.Context, members []elastic.Member, named bool) {
	for _, m := range members {
		if a.asked[m.ID] || m.ID == a.i.ep.Self.ID {
			continue
		}
		a.asked[m.ID] = true
		within, cancel := context.WithCancel(ctx)
		if !named {
			a.hints = append(a.hints, cancel)
			if len(a.hints) > maxFound {
				a.hints[0]()
				a.hints = a.hints[1:]
			}
		}
		a.work.Go(func() {
			defer cancel()
			secret, err := a.i.net.Prove(within, m, a.proof)
			select {
			case a.answers <- answerToProof{m, secret, err, named}:
			case <-ctx.Done():
			}
		})
	}
}

// discover advertises this identity on the local network, once, and lets found know of
// others that do the same for the job, who may be anybody.
func (i *identity) discover(found func(elastic.Member)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.public || i.closed {
		return
	}
	i.public = true
	i.work.Go(func() {
		_ = i.net.Discover(i.ctx, found) // there is no network yet, or no longer
		i.mu.Lock()
		i.public = false
		i.mu.Unlock()
	})
}

// contactPeriod is the time between two looks for members to ask.
const contactPeriod = 100 * time.Millisecond

// equip sets the secret with which the identity proves itself from now on.
func (i *identity) equip(secret []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.proof = ticket.BySecret(secret)
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
			proof := i.proof
			i.work.Go(func() {
				defer close(done)
				i.show(m, proof)
			})
		}
	}
	i.mu.Unlock()
	return i.Network.Introduce(known)
}

// show proves this identity to a member. If that fails nothing is known of the member,
// which whoever sends to it will find, and the next Introduce tries again.
func (i *identity) show(m elastic.Member, p ticket.Proof) {
	ctx, cancel := context.WithTimeout(i.ctx, provePeriod)
	defer cancel()
	if _, err := i.net.Prove(ctx, m, p); err != nil {
		i.mu.Lock()
		delete(i.shown, m.ID)
		i.mu.Unlock()
	}
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
