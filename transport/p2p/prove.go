package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/transport/ticket"
)

// ErrImpostor means that a peer answered as a member, but its answer has no valid MAC: it does not
// know the ticket's key.
var ErrImpostor = errors.New("the peer is no member of this job: it could not prove that it knows the ticket")

// ErrVersion means that a peer has another version of the protocol.
var ErrVersion = errors.New("it runs another version of elrun")

// versionError returns the error for a member that answers with its own version of the protocol of
// newcomers.
func versionError(theirs string) error {
	return fmt.Errorf("%w: its protocol is %.8s, that of this program is %s; use the same version at all peers of the job",
		ErrVersion, printable.Line(strings.TrimPrefix(theirs, provePrefix)), version)
}

// Prove proves this host's right to join to a member that does not know this host, and checks that
// the peer is a member. Afterwards both have introduced each other. Prove retries until ctx ends
// while the member cannot be reached or cannot decide yet. It fails at once with an error of
// package ticket if the member refuses, with elastic.ErrOutside if the peer is a newcomer itself, with
// ErrImpostor if it is no member, and with ErrVersion if it has another version of the protocol.
func (h *Host) Prove(ctx context.Context, m elastic.Member, c ticket.Credential) error {
	id, addrs, err := h.conns.contact(m)
	if err == nil {
		// The addresses of a stranger expire. Introduce below makes the addresses permanent once
		// the peer has proved to be a member.
		h.conns.host.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
		defer h.conns.gate.allowDial(id)() // the member is not introduced before it has answered
		p := proveProtocol
		err = h.dialer.retry(ctx, id, func(ctx context.Context) error {
			err := h.proveOnce(ctx, id, p, c)
			if p = proveProtocol; errors.Is(err, errNoAnswer) {
				p = firstProtocol
			}
			return err
		})
	}
	if err == nil {
		err = h.Introduce([]elastic.Member{m})
	}
	for _, c := range h.conns.swarm.ConnsToPeer(id) {
		h.relays.reserve(c) // others may dial this host through m before the first message to m
	}
	h.punch.tryPunch(id)
	if err != nil {
		return fmt.Errorf("p2p: prove to %s: %w", m.ID.Short(), err)
	}
	return nil
}

// proving lets one proof to each peer be in progress at a time. A second proof on the same
// connection would be refused, and its failure would close the connection of the first proof. A
// proving is safe for concurrent use.
type proving struct {
	mu   sync.Mutex
	busy map[peer.ID]chan struct{} // closed at the end of the proof in progress
}

// begin waits until no other proof to a peer is in progress, and returns the function that ends the
// caller's proof. It returns the cause of ctx if ctx ends first.
func (p *proving) begin(ctx context.Context, id peer.ID) (end func(), err error) {
	for {
		p.mu.Lock()
		other := p.busy[id]
		if other == nil {
			own := make(chan struct{})
			p.busy[id] = own
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.busy, id)
				p.mu.Unlock()
				close(own)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// firstProtocol is the protocol of members that do not answer other versions. After an attempt without
// an answer, the next one asks whether the member is one of these.
const firstProtocol protocol.ID = provePrefix + "1"

// proveOnce makes one attempt, or asks only for the version if p is firstProtocol. It closes the connection after a failure: a member reads only one
// request of a stranger on a connection, and an impostor reads none. ctx ends the attempt, by a
// reset of the stream.
func (h *Host) proveOnce(ctx context.Context, id peer.ID, p protocol.ID, c ticket.Credential) error {
	end, err := h.proving.begin(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	s, err := h.dialer.open(ctx, id, p)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	if p == firstProtocol {
		if err = propose(s.Stream, p, nil); err == nil {
			err = versionError(string(p))
		}
	} else {
		err = ask(s.Stream, c, id.String(), string(h.id))
	}
	stop()
	if errors.Is(err, ErrVersion) {
		awaitReader(s.Stream)
		err = final{err}
	}
	_ = s.Reset() // request and answer are complete
	if err != nil && !h.conns.gate.isMember(id) {
		h.conns.hangUp(s.Conn())
	}
	return err
}

// readerPatience bounds the wait of a newcomer for a member of another version.
const readerPatience = time.Second

// awaitReader waits until a member of another version has read what this host has sent, and has ended the
// stream: a reset would take it back, and the member could not tell of the version.
func awaitReader(s network.Stream) {
	if s.CloseWrite() == nil && s.SetReadDeadline(time.Now().Add(readerPatience)) == nil {
		_, _ = io.Copy(io.Discard, s) // an error means that the member has ended it
	}
}

// ask sends the credential of this host to a member, and takes the answer.
func ask(s io.ReadWriter, c ticket.Credential, member, self string) error {
	words := c.Encode()
	var answer [ticket.AnswerSize]byte
	err := propose(s, proveProtocol, append([]byte{credentialWords}, words[:]...))
	if err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	switch {
	case errors.Is(err, ErrVersion):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return takeAnswer(ticket.DecodeAnswer(answer), c, member, self)
}

// errNoAnswer means that the member has ended the stream.
var errNoAnswer = errors.New("it does not answer")

// errNotYet means that the member cannot decide yet; the newcomer retries.
var errNotYet = errors.New("it does not know yet which peers may join")

// takeAnswer returns nil if the answer is valid and admits this host. Errors after which a retry is
// of no use are final. The MAC is checked before anything else: an impostor could otherwise end a
// newcomer's attempts with a made-up refusal.
func takeAnswer(a ticket.Answer, c ticket.Credential, member, self string) error {
	switch {
	// The MAC covers both IDs, so an answer to another newcomer is not valid here.
	case !a.Of(c.Signers, member, self):
		return final{ErrImpostor}
	case a.Decision == ticket.NotYet:
		return errNotYet
	case a.Decision == ticket.Outside:
		return final{elastic.ErrOutside}
	}
	if err := a.Err(time.Now()); err != nil {
		return final{err}
	}
	return nil
}
