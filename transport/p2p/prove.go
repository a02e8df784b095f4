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

// ErrImpostor: what answered as a member does not know the ticket.
var ErrImpostor = errors.New("no member of this job: it could not prove that it knows the ticket")

const (
	// proofTime is how long a newcomer may take to say by what right it comes.
	proofTime = lobbyTime
	// answerTime is how long it may take to read the answer.
	answerTime = time.Second
	// protocolTime is how long a member may take to say which protocol a stream is for.
	protocolTime = time.Minute
)

// Door says what becomes of a newcomer: by an answer that is ticket.In it is let in, as far as
// outsiders are. It is called in several goroutines at once and must not block for long.
type Door func(newcomer elastic.ID, r ticket.Request) ticket.Answer

// SetDoor lets newcomers show by what right they come, as members do. A host without a door
// refuses whoever was not introduced.
func (h *Host) SetDoor(d Door) {
	h.mu.Lock()
	h.door = d
	h.mu.Unlock()
	h.gate.unlock()
}

// Seal signs the record of a ticket by the key of this host.
func (h *Host) Seal(r ticket.Record) ([]byte, error) { return r.Seal(h.keys.private) }

// Prove shows a member, which does not know this host, by what right it comes, and checks that
// the member is one; the two have then been introduced to each other. It tries again until ctx
// ends while the member is not to be reached; it ends at once with an error of package ticket
// if the member refuses, and with ErrImpostor if it is none.
func (h *Host) Prove(ctx context.Context, m elastic.Member, c ticket.Credential) error {
	id, addrs, err := contact(m)
	if err == nil {
		h.host.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
		defer h.gate.ask(id)()
		err = h.retry(ctx, id, func(ctx context.Context) error { return h.proveOnce(ctx, id, c) })
	}
	if err == nil {
		err = h.Introduce([]elastic.Member{m})
	}
	for _, c := range h.swarm.ConnsToPeer(id) {
		h.reserve(c) // others may look for this host before the first message to m
	}
	h.punch.want(id)
	if err != nil {
		return fmt.Errorf("p2p: prove to %s: %w", m.ID.Short(), err)
	}
	return nil
}

// proveOnce makes one attempt. A connection on which it failed is closed: the member
// listens to one request only, and an impostor to none.
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
	_ = s.Reset() // all is said
	if err != nil && !h.gate.has(id) {
		h.hangUp(s.Conn())
	}
	return err
}

// errNotYet: the member cannot tell yet who may join.
var errNotYet = errors.New("it cannot tell yet who may join")

// takeAnswer returns nil if a member has let this host in.
func takeAnswer(a ticket.Answer, c ticket.Credential, member, self string) error {
	switch {
	case !a.Of(c.Signers, member, self):
		return final{ErrImpostor}
	case a.Verdict == ticket.NotYet:
		return errNotYet
	}
	if err := a.Err(time.Now()); err != nil {
		return final{err}
	}
	return nil
}

// acceptProof handles the stream of a newcomer: after that it is in.
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
	if a.Verdict == ticket.In {
		if !h.gate.add(id) {
			a = ticket.Answer{Verdict: ticket.Kicked, Clock: a.Clock}
		}
		h.gate.meet(id, s.Conn().RemoteMultiaddr())
		h.punch.want(id)
	}
	finishProof(s, a.Encode(string(h.id), id.String()))
	if a.Verdict != ticket.In {
		h.expel(s.Conn())
	}
}

// finishProof writes the answer and waits until the other side resets the stream, which
// it does when it has read the answer: a connection that is closed before would take it
// along.
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

// acceptStream is where all streams come in that others open. A member's go to the handler
// of their protocol; a stranger may open one, for its proof.
func (h *Host) acceptStream(s network.Stream) {
	mux := h.members
	if !h.gate.has(s.Conn().RemotePeer()) {
		if !h.lobby.speak(s.Conn()) {
			_ = s.Reset()
			return
		}
		mux = h.strangers
	}
	h.throttle.spend(s.Conn().RemotePeer(), streamTokens)
	err := s.SetDeadline(time.Now().Add(protocolTime))
	if err != nil {
		_ = s.Reset()
		return
	}
	protocol, handler, err := mux.Negotiate(s)
	if err == nil {
		err = errors.Join(s.SetProtocol(protocol), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	_ = handler(protocol, s)
}
