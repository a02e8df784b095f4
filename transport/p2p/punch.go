package p2p

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/punch"
)

// Two members that are connected only through a relay try UDP hole punching through their routers
// (internal/punch; Ford, Srisuresh and Kegel, "Peer-to-Peer Communication Across NATs", 2005). Each
// member asks other members for the external address of its UDP socket. The two then exchange these
// candidates over the relayed connection. The new connection uses QUIC, and serves like any other
// libp2p connection. The socket is opened when it is first needed.

const (
	// punchTime is the timeout of a whole attempt. Streams wait only for the first attempt.
	punchTime = 10 * time.Second
	// searchTime is how long the two hosts send checks to each other, long enough for loaded hosts.
	searchTime = 5 * time.Second
	// punchAgain is the pause after a failed attempt.
	punchAgain = time.Minute
	// punchPause is the pause before a member that does not know this host yet is asked again.
	punchPause = 100 * time.Millisecond
	// punchedTime is how long libp2p may dial an address that was found.
	punchedTime = 10 * time.Second
)

// puncher makes direct connections to peers that are connected only by a relay. All methods are
// safe for concurrent use.
//
// One attempt, of initiator I (the lower ID) and responder R, with observer O, another member:
//
//	I, R  each ask some O: accept my STUN requests; send one and learn the external address (gather)
//	I -> R  over the relayed connection: credential, candidates of I
//	R -> I  candidates of R
//	I, R  send STUN requests to all candidates of the other, until one is answered (StartChecks)
//	I -> R  QUIC connection to the address that answered, over the same UDP sockets
//	I -> R  a last question over the new connection, so that R has it, too
//
// If two hosts try to reach each other at the same time, only one of them initiates, so there is
// one attempt. A host without hole punching has a nil puncher: the methods tryPunch, awaitAttempt,
// why, onConnected, onDisconnected and close accept a nil receiver.
type puncher struct {
	*conns

	// relays has the members that are asked for the external addresses of this host.
	relays   *relays
	throttle *throttle // token buckets, which pay for the packets of outsiders
	ask      func(context.Context, elastic.ID, question) (io.ReadCloser, error)
	key      crypto.PrivKey // identity for QUIC
	loopback bool           // tests: loopback counts as a network
	slowness time.Duration  // tests: factor of all timeouts; otherwise 1

	opening sync.Mutex   // held by the goroutine that opens the socket
	socket  *punchSocket // nil until it is first needed

	// mu guards the fields below.
	mu    sync.Mutex
	busy  map[peer.ID]chan struct{} // attempts in progress; closed at their end
	tried map[peer.ID]trial         // the last failed attempt, until one succeeds
}

// trial is a failed attempt.
type trial struct {
	at time.Time
	// why is the error of the failed attempt.
	why error
}

// newPuncher returns the puncher of a host. With loopback, which is for tests, it also punches on
// loopback, and all timeouts are 30 times as long.
func newPuncher(r *relays, t *throttle, key crypto.PrivKey, loopback bool) *puncher {
	slowness := time.Duration(1)
	if loopback {
		slowness = 30
	}
	return &puncher{conns: r.conns, relays: r, throttle: t, key: key, loopback: loopback, slowness: slowness,
		busy: make(map[peer.ID]chan struct{}), tried: make(map[peer.ID]trial)}
}

// tryPunch starts an attempt in the background with a member that is reached only through relays,
// unless one is in progress or has failed in the last punchAgain. The side with the lower ID
// initiates; the other side waits for its message.
func (p *puncher) tryPunch(id peer.ID) {
	if p == nil || !p.gate.isMember(id) || !p.onlyRelayed(id) || !p.tasks.begin() {
		return
	}
	defer p.tasks.end()
	end := p.beginAttempt(id, false)
	if end == nil {
		return
	}
	// Another attempt may have succeeded since the check above; then this attempt does not start.
	if !p.onlyRelayed(id) {
		end(nil)
		return
	}
	began := p.tasks.run(func() {
		ctx, cancel := context.WithTimeout(p.tasks.life, p.slowness*punchTime)
		defer cancel()
		if p.gate.self < id {
			end(p.initiate(ctx, id))
			return
		}
		<-ctx.Done() // the initiator's message ends the attempt earlier
		end(errNotLed)
	})
	if !began {
		end(nil)
	}
}

// errNotLed means that the initiator has sent no message.
var errNotLed = errors.New("the other side, which begins the hole punching, has sent no request")

// beginAttempt marks an attempt as in progress and returns the function that marks its end with the
// result. asked is true if the other side has started the attempt. If asked is false, beginAttempt
// returns nil while an attempt is in progress, and until punchAgain after a failed attempt.
func (p *puncher) beginAttempt(id peer.ID, asked bool) (end func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, failed := p.tried[id]
	if !asked && (p.busy[id] != nil || failed && time.Since(last.at) < punchAgain) {
		return nil
	}
	mine := p.busy[id]
	if mine == nil { // if an attempt is in progress the other side's attempt takes its place
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

// awaitAttempt waits for the end of the first attempt with a peer, if it is in progress, so that a
// stream with much traffic begins on the direct connection. It does not wait for later attempts:
// the first one has failed, and the next may fail as well, after punchTime each.
func (p *puncher) awaitAttempt(ctx context.Context, id peer.ID) {
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
	case <-p.tasks.closed():
	}
}

// why returns the error of the last failed attempt with a peer; nil if there is none.
func (p *puncher) why(id peer.ID) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried[id].why
}

// initiate is the initiator's side of an attempt. If no socket can be opened it tells the other
// side.
func (p *puncher) initiate(ctx context.Context, id peer.ID) error {
	s, err := p.open()
	if err != nil {
		// Without this message the other side would wait for a request from this host.
		if talk, _, e := p.askRetrying(ctx, id, punchAsk{Error: err.Error()}); e == nil {
			_ = talk.Close()
		}
		return err
	}
	own := s.gather(ctx, id)
	ask := punchAsk{Credential: punch.NewCredential(), Addrs: own.addrs}
	talk, answer, err := p.askRetrying(ctx, id, ask)
	if err != nil {
		return err
	}
	defer talk.Close()
	return p.searchAndConnect(ctx, s, id, punch.CheckList{Credential: ask.Credential, Candidates: answer.Addrs}, own)
}

// askRetrying repeats askOnce while the member does not know this host yet, until ctx ends.
func (p *puncher) askRetrying(ctx context.Context, id peer.ID, q punchAsk) (io.Closer, punchAnswer, error) {
	for {
		talk, answer, err := p.askOnce(ctx, id, q)
		if err == nil || errors.As(err, new(final)) || p.tasks.pause(ctx, punchPause, err) != nil {
			return talk, answer, err
		}
	}
}

// searchAndConnect sends checks to the candidates in list, and connects with the first candidate
// that answers. If no candidate answers, own adds the probable cause to the error.
func (p *puncher) searchAndConnect(ctx context.Context, s *punchSocket, id peer.ID, list punch.CheckList, own seen) error {
	within, cancel := context.WithTimeout(ctx, p.slowness*searchTime)
	defer cancel()
	list.Initiator, list.Account = true, p.account(id)
	m := s.StartChecks(list)
	defer p.endSearch(m, id)
	at, err := m.Found(within)
	if err != nil {
		return own.explain(err)
	}
	return p.connect(ctx, id, at)
}

// connect makes the QUIC connection to the address that was found.
func (p *puncher) connect(ctx context.Context, id peer.ID, at netip.AddrPort) error {
	a, err := quicAddr(at)
	if err != nil {
		return err
	}
	// The gate would allow only the address where the peer was found last.
	p.gate.forgetAddr(id)
	p.host.Peerstore().AddAddrs(id, []multiaddr.Multiaddr{a}, punchedTime)
	p.swarm.Backoff().Clear(id)
	if _, err := p.swarm.DialPeer(network.WithForceDirectDial(ctx, "punched"), id); err != nil {
		return fmt.Errorf("connect by UDP with %v: %w", at, err)
	}
	// The other side may not have accepted the connection yet, and closes the path when this side
	// ends the attempt. So wait for an answer over the new connection.
	talk, _, err := p.askOnce(ctx, id, punchAsk{Here: true})
	if err == nil {
		_ = talk.Close()
	}
	return err
}

// endSearch ends a search. Afterwards the socket accepts packets only from addresses that a
// connection uses.
func (p *puncher) endSearch(m *punch.Search, id peer.ID) {
	m.Leave(func(a netip.AddrPort) bool { return p.isUsed(id, a) })
}

// isUsed reports whether a connection with the peer uses the address. The socket must accept
// packets from such an address even after another attempt has ended.
func (p *puncher) isUsed(id peer.ID, at netip.AddrPort) bool {
	return slices.ContainsFunc(p.swarm.ConnsToPeer(id), func(c network.Conn) bool { return punchedAt(c) == at })
}

// onDisconnected stops the socket from accepting packets from the other end of a connection that
// has ended.
func (p *puncher) onDisconnected(c network.Conn) {
	if p == nil || !isPunched(c) {
		return
	}
	p.opening.Lock()
	s := p.socket
	p.opening.Unlock()
	if at := punchedAt(c); s != nil && !p.isUsed(c.RemotePeer(), at) {
		s.Drop(at)
	}
}

// punchedAt returns the other end of a connection over UDP; the zero AddrPort for other
// connections.
func punchedAt(c network.Conn) netip.AddrPort { return udpOf(c.RemoteMultiaddr()) }

// account returns the function that charges QUIC's packets to a peer's token bucket, as meteredConn
// does for TCP. Bytes that this host sends earn tokens for the peer, which pay for the packets of
// the peer's acknowledgements.
func (p *puncher) account(id peer.ID) punch.Account {
	const earned = 10 // bytes sent per token: a QUIC packet sent earns the cost of reading one
	t := p.throttle
	return func(read, sent int) bool {
		if sent > 0 {
			t.pay(id, -sent/earned)
			return true
		}
		if owed, _ := t.debt(id); owed > 0 {
			return false // the packet is dropped, and QUIC sends it again
		}
		t.pay(id, read+readTokens)
		return true
	}
}

// close closes the socket, if it was opened. The connections were closed before.
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

// onConnected is called with each new connection, and starts an attempt for a relayed one. The
// other side does the same, so both sides have recorded the attempt before a stream is opened.
func (p *puncher) onConnected(c network.Conn) {
	if p != nil && isRelayed(c.RemoteMultiaddr()) {
		p.tryPunch(c.RemotePeer())
	}
}

// answer answers a question of a member. There are four kinds: Here asks only for an answer; Error ends an
// attempt for which this side waits; a question without addresses asks this host to be the observer; any
// other question begins an attempt. ctx ends when the member has ended the exchange.
func (p *puncher) answer(ctx context.Context, from elastic.ID, q *punchAsk, w *bufio.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, p.slowness*punchTime)
	defer cancel()
	id, err := p.gate.decode(from)
	if err != nil {
		return err
	}
	if q.Here || q.Error != "" {
		if q.Error != "" {
			p.beginAttempt(id, true)(fmt.Errorf("the other side: %s", q.Error[:min(len(q.Error), maxPunchError)]))
		}
		return json.NewEncoder(w).Encode(punchAnswer{})
	}
	socket, err := p.open()
	switch {
	case err != nil:
		if len(q.Addrs) > 0 {
			p.beginAttempt(id, true)(err)
		}
		return json.NewEncoder(w).Encode(punchAnswer{Error: err.Error()})
	case len(q.Addrs) == 0:
		defer socket.Serve(q.Credential)()
		err := sendPunch(w, punchAnswer{Port: socket.port})
		if err == nil {
			<-ctx.Done()
		}
		return err
	default:
		end := p.beginAttempt(id, true)
		err := p.respond(ctx, w, id, socket, q)
		end(err)
		return err
	}
}

// sendPunch sends an answer before the exchange ends.
func sendPunch(w *bufio.Writer, a punchAnswer) error {
	if err := json.NewEncoder(w).Encode(a); err != nil {
		return err
	}
	return w.Flush()
}

// respond is the responder's side of an attempt. It answers with its candidates, sends checks, and
// then waits until the initiator ends the exchange: the initiator makes the connection, and this side
// has the connection only then. The result is an error if the peer is still reached only through
// relays.
func (p *puncher) respond(ctx context.Context, w *bufio.Writer, id peer.ID, socket *punchSocket, q *punchAsk) error {
	own := socket.gather(ctx, id)
	m := socket.StartChecks(punch.CheckList{Credential: q.Credential, Candidates: q.Addrs, Account: p.account(id)})
	defer p.endSearch(m, id)
	if err := sendPunch(w, punchAnswer{Addrs: own.addrs}); err != nil {
		return err
	}
	_, err := m.Found(ctx)
	<-ctx.Done()
	switch {
	case !p.onlyRelayed(id):
		return nil
	case err == nil:
		err = errors.New("hole punching found a path through the routers, but QUIC did not connect over it")
	}
	return own.explain(err)
}

// Hole punching has one question and one answer. A credential lets its holder send checks to a socket.
//
//	asks                                            answers
//	my credential: what is my address?         ->   accepts requests with the credential
//	                                           <-   its UDP port
//	my credential and candidates               ->   collects its own candidates
//	                                           <-   its candidates; sends checks to the other's
//	error: I cannot try                        ->   stops waiting
//
// Closing the answer ends the exchange. The initiator sends a last question (Here) over the new
// connection to be sure that the other side has it, too.

const (
	// maxPunch is the longest answer, in bytes.
	maxPunch = 4 << 10
	// maxPunchError is the number of bytes of the other side's error that are reported.
	maxPunchError = 200
)

// punchAsk is a question. Without addresses it asks for the sender's external address.
type punchAsk struct {
	Here       bool             `json:"here,omitempty"` // asks only for an answer
	Error      string           `json:"error,omitempty"`
	Credential punch.Credential `json:"credential"`      // for the checks of this exchange
	Addrs      []netip.AddrPort `json:"addrs,omitempty"` // candidates of the sender
}

// punchAnswer is the answer to a punchAsk.
type punchAnswer struct {
	Error string           `json:"error,omitempty"`
	Port  uint16           `json:"port,omitempty"` // the answering side's UDP port
	Addrs []netip.AddrPort `json:"addrs,omitempty"`
}

// askOnce asks a question and returns the answer. The caller closes talk, which ends the exchange. An
// error that the other side reports is final.
func (p *puncher) askOnce(ctx context.Context, id peer.ID, q punchAsk) (talk io.Closer, a punchAnswer, err error) {
	r, err := p.ask(ctx, elastic.ID(id.String()), question{Punch: &q})
	if err == nil {
		err = json.NewDecoder(io.LimitReader(r, maxPunch)).Decode(&a)
		if err == nil && a.Error != "" {
			err = final{errors.New(a.Error[:min(len(a.Error), maxPunchError)])}
		}
		if err == nil {
			return r, a, nil
		}
		_ = r.Close()
	}
	return nil, a, fmt.Errorf("ask %s for hole punching: %w", id.ShortString(), err)
}
