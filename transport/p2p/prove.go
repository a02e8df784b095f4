package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// ErrImpostor means that a peer answered as a member, but its answer has no valid MAC: it does not
// know the ticket's key.
var ErrImpostor = errors.New("no member of this job: it could not prove that it knows the ticket")

const (
	// proofTime is how long a newcomer may take to send its request.
	proofTime = strangerTime
	// answerTime is how long it may take to read the answer.
	answerTime = time.Second
	// protocolTime is how long a member may take to negotiate the protocol of a stream.
	protocolTime = time.Minute
)

// Door is the admission policy: it answers the request of a newcomer. With the decision ticket.In
// the newcomer is admitted as an outsider. Several goroutines call it at once; it must not block
// for long.
type Door func(newcomer elastic.ID, r ticket.Request) ticket.Answer

// SetDoor sets the admission policy, by which newcomers may prove their right to join. A host
// without one refuses every peer that was not introduced.
func (h *Host) SetDoor(d Door) {
	h.mu.Lock()
	h.door = d
	h.mu.Unlock()
	h.gate.admitStrangers()
}

// Seal signs the record of a ticket with the key of this host.
func (h *Host) Seal(r ticket.Record) ([]byte, error) { return r.Seal(h.keys.private) }

// Prove proves this host's right to join to a member that does not know it, and checks that the
// peer is a member. Afterwards both have introduced each other. Prove retries until ctx ends while
// the member cannot be reached or cannot decide yet. It fails at once with an error of package
// ticket if the member refuses, and with ErrImpostor if the peer is no member.
func (h *Host) Prove(ctx context.Context, m elastic.Member, c ticket.Credential) error {
	id, addrs, err := contact(m)
	if err == nil {
		h.host.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
		defer h.gate.allowDial(id)()
		err = h.retry(ctx, id, func(ctx context.Context) error { return h.proveOnce(ctx, id, c) })
	}
	if err == nil {
		err = h.Introduce([]elastic.Member{m})
	}
	for _, c := range h.swarm.ConnsToPeer(id) {
		h.reserve(c) // others may look for this host before the first message to m
	}
	h.punch.tryPunch(id)
	if err != nil {
		return fmt.Errorf("p2p: prove to %s: %w", m.ID.Short(), err)
	}
	return nil
}

// proveOnce makes one attempt. It closes the connection after a failure: a member reads only one
// request of a stranger on a connection, and an impostor reads none.
func (h *Host) proveOnce(ctx context.Context, id peer.ID, c ticket.Credential) error {
	s, err := h.open(ctx, id, proveProtocol)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	words := c.Encode()
	var answer [ticket.AnswerSize]byte
	if _, err = s.Write(words[:]); err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	stop()
	if err == nil {
		err = takeAnswer(ticket.DecodeAnswer(answer), c, id.String(), string(h.id))
	}
	_ = s.Reset() // request and answer are complete
	if err != nil && !h.gate.isMember(id) {
		h.hangUp(s.Conn())
	}
	return err
}

// errNotYet means that the member cannot decide yet; the newcomer retries.
var errNotYet = errors.New("it cannot tell yet who may join")

// takeAnswer returns nil if the answer is valid and admits this host. Errors after which a retry is
// of no use are final.
func takeAnswer(a ticket.Answer, c ticket.Credential, member, self string) error {
	switch {
	case !a.Of(c.Signers, member, self):
		return final{ErrImpostor}
	case a.Decision == ticket.NotYet:
		return errNotYet
	}
	if err := a.Err(time.Now()); err != nil {
		return final{err}
	}
	return nil
}

// acceptProof handles the stream of a newcomer. After the decision ticket.In the newcomer is an
// outsider; after any other its connection is closed.
func (h *Host) acceptProof(s network.Stream) {
	err := s.SetDeadline(time.Now().Add(proofTime))
	var words [ticket.RequestSize]byte
	if err == nil {
		_, err = io.ReadFull(s, words[:])
	}
	h.mu.Lock()
	door := h.door
	h.mu.Unlock()
	if err != nil || door == nil {
		_ = s.Reset()
		return
	}
	id := s.Conn().RemotePeer()
	a := door(elastic.ID(id.String()), ticket.DecodeRequest(words))
	a.Clock = time.Now().Unix()
	if a.Decision == ticket.In {
		if !h.gate.add(id) {
			a = ticket.Answer{Decision: ticket.Kicked, Clock: a.Clock}
		}
		h.gate.markReached(id, s.Conn().RemoteMultiaddr())
		h.punch.tryPunch(id)
	}
	finishProof(s, a.Encode(string(h.id), id.String()))
	if a.Decision != ticket.In {
		h.expel(s.Conn())
	}
}

// finishProof sends the answer and waits until the other side resets the stream, which it does when
// it has read the answer. If the connection were closed before, the answer would be lost.
func finishProof(s network.Stream, answer [ticket.AnswerSize]byte) {
	err := s.SetDeadline(time.Now().Add(answerTime))
	if err == nil {
		_, err = s.Write(answer[:])
	}
	if err == nil {
		_, _ = s.Read(make([]byte, 1))
	}
	_ = s.Reset()
}

// acceptStream receives all streams that others open. A stream of a member goes to the handler of
// its protocol, and a stranger may open one stream, for its proof.
func (h *Host) acceptStream(s network.Stream) {
	known := h.gate.isMember(s.Conn().RemotePeer())
	if !known && !h.strangers.mayOpenStream(s.Conn()) {
		_ = s.Reset()
		return
	}
	h.throttle.spend(s.Conn().RemotePeer(), streamTokens)
	err := s.SetDeadline(time.Now().Add(protocolTime))
	if err != nil {
		_ = s.Reset()
		return
	}
	if !known {
		h.acceptStranger(s)
		return
	}
	name, handler, err := h.members.Negotiate(s)
	if err == nil {
		err = errors.Join(s.SetProtocol(name), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	_ = handler(name, s)
}

// acceptStranger handles the stream of a stranger: a proof. It resets any other stream at once, as
// its opener may be a member that this host has yet to hear of, and tries again.
func (h *Host) acceptStranger(s network.Stream) {
	err := expectProposal(s, proveProtocol)
	if err == nil {
		_, err = s.Write(proposalOf(proveProtocol))
	}
	if err == nil {
		err = errors.Join(s.SetProtocol(proveProtocol), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	h.handle(h.acceptProof)(s)
}
