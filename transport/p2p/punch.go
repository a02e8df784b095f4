package p2p

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/transport/internal/punch"
)

// Two members that reach each other by way of a third only look for a way through the routers
// between them: package punch. Each learns from members where its socket is seen, and they tell
// each other over the relayed connection. The connection that they make is QUIC's, and is
// used like any other of libp2p. The socket is opened when it is needed first.

const (
	// punchTime is how long an attempt may take, with all that belongs to it. Only the first one is
	// waited for.
	punchTime = 10 * time.Second
	// searchTime is how long the two look for each other, on machines that have much else to do.
	searchTime = 5 * time.Second
	// punchAgain is after how long those who have failed may try again.
	punchAgain = time.Minute
	// punchPause is how long to wait for a member that does not know this host yet.
	punchPause = 100 * time.Millisecond
	// punchedTime is how long libp2p may dial an address that was found.
	punchedTime = 10 * time.Second
)

// puncher makes direct connections in place of relayed ones. All methods are safe for
// concurrent use.
type puncher struct {
	h        *Host
	key      crypto.PrivKey
	limits   network.ResourceManager
	loopback bool          // also there, for tests
	slowness time.Duration // all limits are so many times as long, for tests

	opening sync.Mutex // held by who opens the socket
	socket  *punchSocket

	mu    sync.Mutex
	busy  map[peer.ID]chan struct{} // closed when the attempt has ended
	tried map[peer.ID]trial         // attempts that failed
}

// trial is what is known of an attempt that failed.
type trial struct {
	at  time.Time
	why error
}

// newPuncher returns the puncher of a host.
func newPuncher(h *Host, key crypto.PrivKey, limits network.ResourceManager, loopback bool) *puncher {
	slowness := time.Duration(1)
	if loopback {
		slowness = 30
	}
	return &puncher{h: h, key: key, limits: limits, loopback: loopback, slowness: slowness, busy: make(map[peer.ID]chan struct{}), tried: make(map[peer.ID]trial)}
}

// want begins an attempt with a member that is reached by way of others only, unless there is one
// or one has failed a short time ago. Of the two the one with the lower ID leads; the other
// waits for it.
func (p *puncher) want(id peer.ID) {
	if p == nil || !p.h.gate.has(id) || !p.h.onlyRelayed(id) || !p.h.begin() {
		return
	}
	defer p.h.working.Done()
	end := p.start(id, false)
	if end == nil {
		return
	}
	// An attempt may have succeeded since the look above: then nobody leads in another one.
	if !p.h.onlyRelayed(id) || !p.h.begin() {
		end(nil)
		return
	}
	go func() {
		defer p.h.working.Done()
		ctx, cancel := context.WithTimeout(p.h.life, p.slowness*punchTime)
		defer cancel()
		if p.h.gate.self < id {
			end(p.lead(ctx, id))
			return
		}
		<-ctx.Done() // unless the other one leads before
		end(errNotLed)
	}()
}

var errNotLed = errors.New("the other side has not looked for a way through the routers")

// start marks an attempt as begun and returns what marks its end; nil if there is one, or there
// was one a short time ago and this one is not asked for by the other side.
func (p *puncher) start(id peer.ID, asked bool) (end func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, failed := p.tried[id]
	if !asked && (p.busy[id] != nil || failed && time.Since(last.at) < punchAgain) {
		return nil
	}
	mine := p.busy[id]
	if mine == nil {
		mine = make(chan struct{})
		p.busy[id] = mine
	}
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.busy[id] != mine {
			return
		}
		delete(p.busy, id)
		close(mine)
		if err == nil {
			delete(p.tried, id)
			return
		}
		p.tried[id] = trial{time.Now(), err}
	}
}

// settled waits for the end of the first attempt with a peer, if that is under way, so that what
// takes its time takes the better way.
func (p *puncher) settled(ctx context.Context, id peer.ID) {
	if p == nil {
		return
	}
	p.mu.Lock()
	busy := p.busy[id]
	_, failed := p.tried[id]
	p.mu.Unlock()
	if busy == nil || failed {
		return
	}
	select {
	case <-busy:
	case <-ctx.Done():
	case <-p.h.done:
	}
}

// why returns why a peer is reached by way of others, if that is known.
func (p *puncher) why(id peer.ID) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried[id].why
}

// lead leads in an attempt, or tells the other side that it cannot.
func (p *puncher) lead(ctx context.Context, id peer.ID) error {
	s, err := p.open()
	if err != nil {
		if talk, _, e := p.askUntil(ctx, id, punchAsk{Error: err.Error()}); e == nil {
			talk.end()
		}
		return err
	}
	own := s.gather(ctx, id)
	ask := punchAsk{Credential: punch.NewCredential(), Addrs: own.addrs}
	talk, answer, err := p.askUntil(ctx, id, ask)
	if err != nil {
		return err
	}
	defer talk.end()
	return p.dig(ctx, s, id, punch.Meeting{Credential: ask.Credential, Candidates: answer.Addrs}, own)
}

// askUntil asks a member that may not know this host yet, again and again.
func (p *puncher) askUntil(ctx context.Context, id peer.ID, q punchAsk) (*punchTalk, punchAnswer, error) {
	for {
		talk, answer, err := p.ask(ctx, id, q)
		if err == nil || errors.As(err, new(final)) || p.h.pause(ctx, punchPause, err) != nil {
			return talk, answer, err
		}
	}
}

// dig looks for a member and connects with it.
func (p *puncher) dig(ctx context.Context, s *punchSocket, id peer.ID, meeting punch.Meeting, own seen) error {
	within, cancel := context.WithTimeout(ctx, p.slowness*searchTime)
	defer cancel()
	meeting.Initiator, meeting.Account = true, p.account(id)
	m := s.Meet(meeting)
	defer p.leave(m, id)
	at, err := m.Found(within)
	if err != nil {
		return own.explain(err)
	}
	return p.connect(ctx, id, at)
}

// connect makes the connection at the address that was found.
func (p *puncher) connect(ctx context.Context, id peer.ID, at netip.AddrPort) error {
	a, err := quicAddr(at)
	if err != nil {
		return err
	}
	p.h.gate.moved(id)
	p.h.host.Peerstore().AddAddrs(id, []multiaddr.Multiaddr{a}, punchedTime)
	p.h.swarm.Backoff().Clear(id)
	if _, err := p.h.swarm.DialPeer(network.WithForceDirectDial(ctx, "punched"), id); err != nil {
		return fmt.Errorf("connect by UDP with %v: %w", at, err)
	}
	// The other side may not have its end yet; it closes the way when it is told that all is over.
	talk, _, err := p.ask(ctx, id, punchAsk{Here: true})
	if err == nil {
		talk.end()
	}
	return err
}

// leave ends a search; packets pass only from where there is a connection.
func (p *puncher) leave(m *punch.Search, id peer.ID) {
	m.Leave(func(a netip.AddrPort) bool { return p.isUsed(id, a) })
}

// isUsed reports whether there is a connection with a peer at an address.
func (p *puncher) isUsed(id peer.ID, at netip.AddrPort) bool {
	return slices.ContainsFunc(p.h.swarm.ConnsToPeer(id), func(c network.Conn) bool { return punchedAt(c) == at })
}

// disconnected closes the socket to where a connection was.
func (p *puncher) disconnected(c network.Conn) {
	if p == nil || !p.isPunched(c) {
		return
	}
	p.opening.Lock()
	s := p.socket
	p.opening.Unlock()
	if at := punchedAt(c); s != nil && !p.isUsed(c.RemotePeer(), at) {
		s.Drop(at)
	}
}

// isPunched reports whether a connection was made by a puncher: beside it there is no way for
// connections of their own.
func (p *puncher) isPunched(c network.Conn) bool { return p != nil && punchedAt(c).IsValid() }

// punchedAt returns the other end of a connection over UDP.
func punchedAt(c network.Conn) netip.AddrPort { return udpOf(c.RemoteMultiaddr()) }

// account bounds what QUIC reads of a member that is in no view, as the throttle does for TCP.
// QUIC acknowledges for itself: what is sent pays for the packets that come for it.
func (p *puncher) account(id peer.ID) punch.Account {
	const earned = 10 // bytes sent for a token: a packet of QUIC earns what it costs to read one
	t := p.h.throttle
	return func(read, sent int) bool {
		if sent > 0 {
			t.pay(id, -sent/earned)
			return true
		}
		if owed, _ := t.debt(id); owed > 0 {
			return false
		}
		t.pay(id, read+readTokens)
		return true
	}
}

// close ends what the socket is made of; connections have been closed before.
func (p *puncher) close() error {
	if p == nil {
		return nil
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.socket == nil {
		return nil
	}
	return p.socket.manager.Close()
}

// reachedAs notes that there is a connection: a relayed one may make way for a better one.
func (p *puncher) reachedAs(c network.Conn) {
	if p != nil && isRelayed(c.RemoteMultiaddr()) {
		p.want(c.RemotePeer())
	}
}
