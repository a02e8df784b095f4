package p2p

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

// The upgrade of a data stream to a direct connection is negotiated over the stream. Both sides
// send their offers. Then one side dials: first the side that has dialled libp2p's connection. Its
// peer has accepted a connection, whereas the dialling side may be behind a router. If the first
// side fails the other side dials. The opener of the stream is the initiator: it decides which side
// dials, and sends the result.
//
//	initiator                            responder
//	Hello, Offer (no ticket)          ->
//	                                  <-  Hello, Offer with a ticket
//	  dials the responder; if that succeeds:
//	Choice dialled                    ->  waits for the connection with its ticket
//	  if not, or if the responder is to dial first:
//	Choice askDial with a ticket      ->  dials the initiator
//	                                  <-  Choice dialled, or keepStream with the reason
//	  if nobody has succeeded:
//	Choice keepStream with reasons    ->
//
// When a direct connection was made both sides close the libp2p stream, which carries nothing else.
// The tickets are secret and valid once, so a connection belongs to this stream and to no other.

// choice is the payload of a Choice frame.
type choice struct {
	code byte
	// ticket is set for askDial: the sender accepts one connection from the holder of the ticket.
	ticket direct.Ticket
	// why is the reason why no better path was taken; "" for the best path.
	why string
}

// Codes of a choice.
const (
	keepStream = iota // the libp2p stream remains the data stream
	dialled           // the sender of the choice has made a direct connection
	askDial           // the receiver of the choice is to dial, and to answer with dialled or keepStream
)

// append appends a Choice frame to b. The reason is cut to maxWhy bytes.
func (c choice) append(b []byte) []byte {
	body := []byte{c.code}
	if c.code == askDial {
		body = append(append(body, c.ticket.Number[:]...), c.ticket.Key[:]...)
	}
	return wire.AppendFrame(b, wire.Choice, append(body, c.why[:min(len(c.why), maxWhy)]...))
}

// decodeChoice decodes the payload of a Choice frame.
func decodeChoice(b []byte) (choice, error) {
	if len(b) == 0 || b[0] > askDial {
		return choice{}, fmt.Errorf("read choice: %d bytes that do not begin with a known code: %w", len(b), wire.ErrFormat)
	}
	c, rest := choice{code: b[0]}, b[1:]
	if c.code == askDial { // the ticket is between the code and the reason
		n := copy(c.ticket.Number[:], rest)
		rest = rest[n:]
		if n = copy(c.ticket.Key[:], rest); n < len(c.ticket.Key) {
			return choice{}, fmt.Errorf("read choice: %d bytes, too few for a ticket: %w", len(b), wire.ErrFormat)
		}
		rest = rest[n:]
	}
	c.why = string(rest)
	return c, nil
}

// readChoice reads a Choice frame.
func readChoice(s *stream) (choice, error) {
	_, b, err := wire.ReadFrame(s, wire.Choice)
	if err != nil {
		return choice{}, err
	}
	return decodeChoice(b)
}

// sendChoice sends a choice. If the write fails, or ctx has ended, it resets c, because the other
// side does not know that c exists. c may be nil.
func sendChoice(ctx context.Context, s *stream, c *direct.Conn, what choice) error {
	err := context.Cause(ctx)
	if err == nil {
		_, err = s.Write(what.append(nil))
	}
	if err != nil && c != nil {
		_ = c.Reset()
	}
	return err
}

// answered returns the choice to send after an attempt to dial: dialled with a connection, or
// keepStream. why may be set in both cases: a connection may be of the second best kind.
func answered(c *direct.Conn, why string) choice {
	if c == nil {
		return choice{code: keepStream, why: why}
	}
	return choice{code: dialled, why: why}
}

// dialOrder returns which sides dial, in their order: true is the opener of the stream, false the
// other side. A side that cannot reach the other is left out. Over a Unix socket the opener always
// dials first, as both directions work alike.
func (p *paths) dialOrder(s *stream, theirs *offer) (all []bool) {
	unix, tcp := p.candidates(s, theirs)
	c := s.Conn()
	if unix != nil || tcp {
		all = append(all, true)
	}
	// The other side can dial only if this side has a direct port, and if libp2p's connection shows
	// that the hosts can connect directly: a relayed or punched connection does not show this.
	if p.listener.port != nil && theirs.path != mesh.StreamPath && !isRelayed(c.RemoteMultiaddr()) && !isPunched(c) {
		all = append(all, false)
	}
	// The side that has dialled libp2p's connection is known to reach the other side.
	if c.Stat().Direction == network.DirInbound && unix == nil {
		slices.Reverse(all)
	}
	return all
}

// upgradable is a data stream that may be replaced by a direct connection. The mesh calls Upgrade
// once, after the hellos and before the first frame of data, so no byte of the session is in
// flight.
type upgradable struct {
	*stream
	paths *paths
}

// Upgrade implements mesh.Upgrader. The opener's offer has come with its hello.
func (u upgradable) Upgrade(ctx context.Context, opener bool) (mesh.Stream, error) {
	theirs, err := readOffer(u)
	if err != nil {
		return nil, err
	}
	if opener {
		return u.paths.negotiatePath(ctx, u.stream, theirs)
	}
	return u.paths.answerOffer(ctx, u.stream, theirs)
}

// negotiatePath is the initiator's side of the negotiation. It returns the stream to use, which is
// s or a direct connection.
func (p *paths) negotiatePath(ctx context.Context, s *stream, theirs offer) (mesh.Stream, error) {
	var reasons []string
	for _, own := range p.dialOrder(s, &theirs) {
		var c *direct.Conn
		var why string
		var err error
		if own {
			if c, why = p.dialBest(ctx, s, &theirs); c != nil {
				err = sendChoice(ctx, s, c, answered(c, why))
			}
		} else {
			c, why, err = p.reverseDial(ctx, s, &theirs)
		}
		if err != nil {
			return nil, err
		}
		if c != nil {
			return p.conclude(s, c, why), nil
		}
		if why != "" {
			reasons = append(reasons, why)
		}
	}
	// For a relayed stream the reasons include the failure of hole punching.
	if err := p.punch.why(s.Conn().RemotePeer()); err != nil && isRelayed(s.Conn().RemoteMultiaddr()) {
		reasons = append(reasons, err.Error())
	}
	why := strings.Join(reasons, "; the other way: ")
	if err := sendChoice(ctx, s, nil, answered(nil, why)); err != nil {
		return nil, err
	}
	return p.conclude(s, nil, why), nil
}

// reverseDial asks the other side to dial (connection reversal, RFC 5128, section 3.2), and waits
// for its connection. c is nil, with the reason, if the other side could not dial.
func (p *paths) reverseDial(ctx context.Context, s *stream, theirs *offer) (c *direct.Conn, why string, err error) {
	t := direct.NewTicket()
	w := p.listener.port.Expect(t, p.encryption(s.Conn().RemotePeer(), theirs))
	defer w.Cancel()
	// The port expects the connection before the other side can dial, so no connection arrives too
	// early.
	if err := sendChoice(ctx, s, nil, choice{code: askDial, ticket: t}); err != nil {
		return nil, "", err
	}
	answer, err := readChoice(s)
	switch {
	case err != nil:
		return nil, "", err
	case answer.code == askDial:
		return nil, "", fmt.Errorf("read choice: the other side was asked to dial, and asks this side to dial instead: %w", wire.ErrFormat)
	case answer.code == dialled:
		c, err = w.Wait(ctx)
	}
	return c, answer.why, err
}

// answerOffer is the responder's side of the negotiation. It sends its own offer, dials when asked
// to, and returns the stream that was chosen.
func (p *paths) answerOffer(ctx context.Context, s *stream, theirs offer) (mesh.Stream, error) {
	var t direct.Ticket
	var w *direct.Wait
	if p.listener.port != nil && theirs.path != mesh.StreamPath {
		t = direct.NewTicket()
		w = p.listener.port.Expect(t, p.encryption(s.Conn().RemotePeer(), &theirs))
		defer w.Cancel()
	}
	if _, err := s.Write(appendOffer(nil, p.offer(t))); err != nil {
		return nil, err
	}
	last, err := readChoice(s)
	if err == nil && last.code == askDial {
		theirs.Ticket = last.ticket
		c, why := p.dialBest(ctx, s, &theirs)
		if err = sendChoice(ctx, s, c, answered(c, why)); err == nil && c != nil {
			return p.conclude(s, c, why), nil
		}
		if err == nil { // no connection: the initiator decides on the next attempt
			last, err = readChoice(s)
		}
	}
	if err != nil {
		return nil, err
	}
	return p.followed(ctx, s, w, last)
}

// followed returns the stream of the initiator's last choice. w expects the initiator's connection;
// it is nil if this host has offered no ticket, and then a choice of dialled violates the protocol.
func (p *paths) followed(ctx context.Context, s *stream, w *direct.Wait, last choice) (mesh.Stream, error) {
	switch {
	case last.code == keepStream:
		return p.conclude(s, nil, last.why), nil
	case last.code == dialled && w != nil:
		c, err := w.Wait(ctx)
		if err != nil {
			return nil, err
		}
		return p.conclude(s, c, last.why), nil
	}
	return nil, fmt.Errorf("read choice: the other side chose code %d, which was not offered: %w", last.code, wire.ErrFormat)
}

// maxWhy is the longest reason that is sent, in bytes. It is text for users and for the path event.
const maxWhy = 256
