package p2p

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

const (
	// proofTime is how long a newcomer may take to send its request.
	proofTime = 10 * time.Second
	// policyTime is how long the policy may take to decide.
	policyTime = 20 * time.Second
	// answerTime is how long the newcomer may take to read the answer.
	answerTime = 5 * time.Second
	// protocolTime is how long a member may take to negotiate the protocol of a stream.
	protocolTime = time.Minute
	// maxWords bounds what is read of a stranger's request. A credential is shorter than as many obituaries.
	maxWords = 2 + MaxObituaries*(1+maxIDLength+ed25519.SignatureSize)
)

// AdmissionPolicy answers the request of a newcomer. With the decision ticket.In the newcomer is
// admitted as an outsider. A policy that cannot decide yet may wait until ctx ends, which saves the
// newcomer the handshake of another request. Several goroutines may call a policy at once.
type AdmissionPolicy func(ctx context.Context, newcomer elastic.ID, r ticket.Request) ticket.Answer

// admission lets strangers prove their right to join, and decides which streams of other peers are
// read. All methods are safe for concurrent use.
//
// A stranger passes these steps in this order, and each step has limits of its own:
//
//	TCP connection        halfOpen: number by source address, handshakeTime
//	security handshake    proves the peer ID; gate: refused without a policy
//	connection            strangers: number, strangerTime, one stream
//	stream                throttle: tokens; readProposal: the prove protocol and no other
//	request               a credential or obituaries within proofTime, checked by the policy within policyTime
//	admission             gate.add: the peer is a member for the gate, an outsider for the throttle
type admission struct {
	*conns

	strangers *strangers      // connections of strangers
	throttle  *throttle       // rate limit for outsiders
	members   protocol.Switch // handlers for the streams of members; set before the host listens
	// admitted is called with each newcomer when it is admitted.
	admitted func(peer.ID)
	// onVersion is Config.OnVersion; refused limits it to one call, because anybody can connect.
	onVersion func(error)
	refused   sync.Once
	// onObituaries is Config.OnObituaries.
	onObituaries func([]Obituary) bool

	// mu guards the fields below.
	mu     sync.Mutex
	policy AdmissionPolicy // nil admits nobody
}

// setPolicy sets the admission policy, and lets strangers connect.
func (a *admission) setPolicy(p AdmissionPolicy) {
	a.mu.Lock()
	a.policy = p
	a.mu.Unlock()
	a.gate.admitStrangers()
}

// onConnected is called with each new connection. It records the address of a member, and counts
// an inbound stranger.
func (a *admission) onConnected(c network.Conn) {
	id := c.RemotePeer()
	switch {
	case a.gate.isMember(id) && isPunched(c):
		a.gate.markReached(id, nil) // no address is recorded: a dial to the punched address finds only the peer's router
	case a.gate.isMember(id):
		a.gate.markReached(id, c.RemoteMultiaddr())
	case c.Stat().Direction == network.DirInbound:
		a.strangers.add(c)
	}
}

// acceptStream receives all streams that others open. A stream of a member goes to the handler of
// its protocol, and a stranger may open one stream, for its proof. libp2p calls acceptStream in a
// goroutine for each stream, so an outsider that waits for tokens delays no other peer.
func (a *admission) acceptStream(s network.Stream) {
	known := a.gate.isMember(s.Conn().RemotePeer())
	if !known && !a.strangers.mayOpenStream(s.Conn()) {
		_ = s.Reset()
		return
	}
	// Members of the view pay nothing, so only the streams of outsiders and strangers wait here.
	a.throttle.spend(s.Conn().RemotePeer(), streamTokens)
	err := s.SetDeadline(time.Now().Add(protocolTime))
	if err != nil {
		_ = s.Reset()
		return
	}
	if !known {
		a.acceptStranger(s)
		return
	}
	name, handler, err := a.members.Negotiate(s)
	if err == nil {
		err = errors.Join(s.SetProtocol(name), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	_ = handler(name, s)
}

// acceptStranger handles the stream of a stranger, which may carry only the words of strangers. It resets
// any other stream at once: the opener may be a member that was not introduced to this host yet, and
// then tries again.
func (a *admission) acceptStranger(s network.Stream) {
	got, err := readProposal(s)
	if err == nil && !strings.HasPrefix(string(got), provePrefix) {
		err = fmt.Errorf("a stranger proposed %s", got)
	}
	if err == nil {
		// In multistream-select the acceptance of a protocol repeats the proposal. A newcomer of another
		// version learns the version of this peer from the answer.
		_, err = s.Write(proposalOf(proveProtocol))
	}
	if err == nil && got != proveProtocol {
		a.refuseVersion(s, got)
		return
	}
	if err == nil {
		err = errors.Join(s.SetProtocol(proveProtocol), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	a.tasks.handle(a.acceptWords)(s)
}

// refuseVersion waits until a newcomer with another version of the protocol has read the answer. One
// that sends nothing more only asks for the version.
func (a *admission) refuseVersion(s network.Stream, theirs protocol.ID) {
	if n, _ := io.Copy(io.Discard, io.LimitReader(s, maxWords+1)); n > 0 && a.onVersion != nil {
		a.refused.Do(func() { a.onVersion(versionError(string(theirs))) })
	}
	_ = s.Reset()
}

// acceptWords handles the stream of a stranger of this version.
func (a *admission) acceptWords(s network.Stream) {
	var kind [1]byte
	err := s.SetDeadline(time.Now().Add(proofTime))
	if err == nil {
		_, err = io.ReadFull(s, kind[:])
	}
	switch {
	case err == nil && kind[0] == credentialWords:
		a.acceptProof(s)
	case err == nil && kind[0] == obituaryWords:
		a.acceptObituaries(s)
	default:
		_ = s.Reset()
	}
}

// acceptProof handles the credential of a newcomer. After the decision ticket.In the newcomer is an
// outsider; after any other decision its connection is closed.
func (a *admission) acceptProof(s network.Stream) {
	var words [ticket.RequestSize]byte
	_, err := io.ReadFull(s, words[:])
	a.mu.Lock()
	policy := a.policy
	a.mu.Unlock()
	if err != nil || policy == nil {
		_ = s.Reset()
		return
	}
	id := s.Conn().RemotePeer()
	// The policy verifies signatures, so it is called only for a complete request.
	ctx, cancel := context.WithTimeout(a.tasks.life, policyTime)
	answer := policy(ctx, elastic.ID(id.String()), ticket.DecodeRequest(words))
	cancel()
	answer.Clock = time.Now().Unix()
	if answer.Decision == ticket.In {
		if !a.gate.add(id) {
			// The peer is banned, and a ticket does not lift the ban.
			answer = ticket.Answer{Decision: ticket.Kicked, Clock: answer.Clock}
		}
		// The connection was made before the peer was a member, so onConnected has not recorded its
		// address.
		a.gate.markReached(id, s.Conn().RemoteMultiaddr())
		a.admitted(id)
	}
	finishProof(s, answer.Encode(a.gate.self.String(), id.String()))
	if answer.Decision != ticket.In {
		a.expel(s.Conn())
	}
}

// finishProof sends the answer and waits until the other side resets the stream, which the other
// side does when it has read the answer. If the connection were closed before, the answer could be
// lost. A newcomer that does not reset the stream costs answerTime.
func finishProof(s network.Stream, answer [ticket.AnswerSize]byte) {
	err := s.SetDeadline(time.Now().Add(answerTime))
	if err == nil {
		_, err = s.Write(answer[:])
	}
	if err == nil {
		waitEnd(s)
	}
	_ = s.Reset()
}
