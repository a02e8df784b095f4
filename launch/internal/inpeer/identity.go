package inpeer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/transport/ticket"
)

// network is the interface of p2p.Host that identity needs in addition to an elastic.Endpoint.
type network interface {
	Prove(ctx context.Context, m elastic.Member, c ticket.Credential) error
	Identify(ctx context.Context, addr string) (elastic.Member, error)
	Forget(elastic.ID)
	Learn(members []elastic.Member)
	Discover(ctx context.Context, found func(elastic.Member)) error
	MapPorts(ctx context.Context, report func(error))
	Contacts(ctx context.Context, of elastic.ID) ([]elastic.Member, error)
}

// identity is one ID of this process on the network: the endpoint of a host, and the proofs that a
// newcomer must give to the members before they accept its messages. It is the elastic.Network of
// the group's endpoint, and safe for concurrent use.
//
// All members know a member of the first view from the start. A newcomer proves its right to join
// to each member that it learns of, before it sends the first message to that member. Once the
// newcomer is in a view, all members know it. A newcomer cannot check the proof of another
// newcomer, so members introduce newcomers to each other.
type identity struct {
	elastic.Network // of the endpoint, for the methods that are not overridden below
	ep              elastic.Endpoint
	net             network
	onView          func(elastic.View) // called with each view before the view is connected
	// onFigures answers requests of members for figures, without their first byte; nil refuses them.
	onFigures func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // proofs and discovery

	// mu guards the fields below. It is not held while a proof or a dial is in progress.
	mu           sync.Mutex
	credential   ticket.Credential     // the claims that are shown to members
	disconnected map[elastic.ID]bool   // peers whose connections are dropped or about to be
	inside       bool                  // all members know this ID
	proofs       map[elastic.ID]*proof // by member; failed ones are not kept
	outside      map[elastic.ID]bool   // peers whose last answer to a proof was that they are newcomers
	lastProven   elastic.ID            // the last member that received the proof
	learned      time.Time             // when a member was last asked for addresses
	public       bool                  // this ID is announced on the local network
	closed       bool
}

// proof is a proof of this identity to a member.
type proof struct {
	ended chan struct{} // closed when the proof has succeeded or failed
	err   error         // valid once ended is closed
}

// provePeriod is the time limit of a newcomer's proof to one member.
const provePeriod = 30 * time.Second

// learnPeriod is the minimum time between two requests for the addresses of all members.
const learnPeriod = 2 * time.Second

// newIdentity returns an identity that owns ep.
func newIdentity(ep elastic.Endpoint, n network, entered func(elastic.View)) *identity {
	i := &identity{Network: ep.Network, ep: ep, net: n, onView: entered, proofs: make(map[elastic.ID]*proof), outside: make(map[elastic.ID]bool)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// endpoint returns the identity as an elastic.Endpoint.
func (i *identity) endpoint() elastic.Endpoint {
	ep := i.ep
	ep.Network, ep.Vouch, ep.Close = i, i.vouch, i.Close
	return ep
}

// vouch introduces newcomers that a member has named, without a proof. It implements elastic.Endpoint.Vouch.
func (i *identity) vouch(newcomers []elastic.Member) error {
	i.mu.Lock()
	for _, m := range newcomers {
		delete(i.outside, m.ID) // it answers from now on
	}
	i.mu.Unlock()
	return i.Network.Introduce(newcomers)
}

// joinFirstView records that all members know this identity without a proof, and introduces the
// members.
func (i *identity) joinFirstView(members []elastic.Member) error {
	i.mu.Lock()
	i.inside = true
	i.mu.Unlock()
	return i.Network.Introduce(members)
}

// discover announces this identity on the local network, once, and calls found for other peers that
// announce the same job. These peers are not authenticated. If the announcement ends early, failed
// is called with the cause.
func (i *identity) discover(found func(elastic.Member), failed func(error)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.public || i.closed {
		return
	}
	// public stays set while the announcement runs, and is cleared if it ends early, so that the
	// next call tries again.
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

// mapPorts asks the router to forward ports to this identity. report is called with the result.
func (i *identity) mapPorts(report func(error)) {
	i.work.Go(func() { i.net.MapPorts(i.ctx, report) })
}

// setCredential sets the claims that the identity shows to members from now on. Proofs in
// progress keep the claims with which they began.
func (i *identity) setCredential(c ticket.Credential) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.credential = c
}

// forgetAfter is how long kicked peers keep their connections, so that the notification still
// reaches them.
const forgetAfter = time.Second

// disconnect closes the connections of kicked peers after forgetAfter and refuses new ones.
func (i *identity) disconnect(ids []elastic.ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		if i.disconnected[id] || i.closed {
			continue
		}
		if i.disconnected == nil {
			i.disconnected = make(map[elastic.ID]bool)
		}
		i.disconnected[id] = true
		i.work.Go(func() {
			if pause.For(i.ctx, forgetAfter) == nil {
				i.net.Forget(id)
			}
		})
	}
}

// Introduce implements elastic.Network. Members that need a proof of this identity are introduced
// once they have it.
func (i *identity) Introduce(members []elastic.Member) error {
	var known []elastic.Member
	i.mu.Lock()
	for _, m := range members {
		if i.inside || m.ID == i.ep.Self.ID {
			known = append(known, m)
			continue
		}
		// A proof that is under way tries the new addresses, too.
		i.net.Learn([]elastic.Member{m})
		if i.proofs[m.ID] == nil && !i.closed {
			// One goroutine for each member: a member that does not answer must not delay the
			// proofs to other members.
			begun := &proof{ended: make(chan struct{})}
			i.proofs[m.ID] = begun
			credential := i.credential
			i.work.Go(func() {
				defer close(begun.ended)
				begun.err = i.prove(m, credential)
			})
		}
	}
	i.mu.Unlock()
	return i.Network.Introduce(known)
}

// prove proves this identity to a member. After a failure the member stays unknown, so that sends
// to it fail, and the next Introduce tries again.
func (i *identity) prove(m elastic.Member, c ticket.Credential) error {
	ctx, cancel := context.WithTimeout(i.ctx, provePeriod)
	defer cancel()
	err := i.net.Prove(ctx, m, c)
	i.mu.Lock()
	i.outside[m.ID] = errors.Is(err, elastic.ErrOutside)
	// A failed proof may mean that the member's addresses are old: the member that received the
	// last proof may know newer addresses.
	by, asks := i.lastProven, false
	if err == nil {
		i.lastProven = m.ID
	} else {
		delete(i.proofs, m.ID)
		if asks = by != "" && time.Since(i.learned) > learnPeriod; asks {
			i.learned = time.Now()
		}
	}
	i.mu.Unlock()
	if asks {
		i.askAddrs(by)
	}
	return err
}

// askAddrs asks the member with ID by for the current addresses of the other members: the address
// of a host may have changed after the view was made.
func (i *identity) askAddrs(by elastic.ID) {
	ctx, cancel := context.WithTimeout(i.ctx, provePeriod)
	defer cancel()
	_, _ = i.net.Contacts(ctx, by) // without new addresses the next proof fails like this one
}

// wait waits until the proof to the member is over, or ctx ends.
func (i *identity) wait(ctx context.Context, to elastic.ID) error {
	i.mu.Lock()
	begun := i.proofs[to]
	i.mu.Unlock()
	if begun == nil {
		return nil
	}
	select {
	case <-begun.ended:
		return begun.err
	case <-ctx.Done():
		return fmt.Errorf("prove to %s: %w", to.Short(), context.Cause(ctx))
	}
}

// Send implements elastic.Network. It waits for the proof to the receiver.
func (i *identity) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	if err := i.wait(ctx, to); err != nil {
		return err
	}
	return i.Network.Send(ctx, to, msg)
}

// Connect implements elastic.Network. After the first call all members know this identity.
func (i *identity) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	if err := i.joinFirstView(v.Members); err != nil {
		return nil, err
	}
	i.onView(v)
	return i.Network.Connect(ctx, v, self)
}

// Request implements elastic.Network. It waits for the proof to the receiver, unless the receiver was a newcomer
// at the last one.
func (i *identity) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	i.mu.Lock()
	outside := i.outside[to] && !i.inside
	i.mu.Unlock()
	if outside {
		return nil, fmt.Errorf("ask %s: %w", to.Short(), elastic.ErrOutside)
	}
	if err := i.wait(ctx, to); err != nil {
		return nil, err
	}
	return i.Network.Request(ctx, to, request)
}

// Serve implements elastic.Network. Requests for figures and for the time do not concern the group.
func (i *identity) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	i.Network.Serve(func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error {
		switch {
		case i.onFigures != nil && len(request) > 0 && request[0] == figuresRequest:
			return i.onFigures(ctx, from, request[1:], w)
		case len(request) == 1 && request[0] == clockRequest:
			_, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano())))
			return err
		}
		return answer(ctx, from, request, w)
	})
}

// run runs f in a goroutine, for which Close waits; Close ends the context of f.
func (i *identity) run(f func(context.Context)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.work.Go(func() { f(i.ctx) })
	}
}

// Close removes the identity from the network and waits for its goroutines.
func (i *identity) Close() error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.cancel()
	err := i.ep.Close()
	i.work.Wait()
	return err
}
