package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/transport/internal/punch"
)

// Messages of hole punching: one question and one answer, in JSON, on a stream. A credential lets
// its holder send checks to a socket.
//
//	asks                                            answers
//	my credential: what is my address?         ->   accepts requests with the credential
//	                                           <-   its UDP port
//	my credential and candidates               ->   collects its own candidates
//	                                           <-   its candidates; sends checks to the other's
//	error: I cannot try                        ->   stops waiting
//
// Ending the stream ends the exchange. The initiator sends a last question (Here) over the new
// connection to be sure that the other side has it, too.

const (
	// maxPunch is the longest message, in bytes.
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

// punchTalk is an exchange whose stream is still open.
type punchTalk struct {
	s    network.Stream
	stop func() bool // cancels the reset of s at the end of ctx
}

// end resets the stream, which tells the other side that the exchange is over. The other side waits
// for the reset in waitEnd.
func (p *punchTalk) end() {
	p.stop()
	_ = p.s.Reset()
}

// ask sends a question on a new stream, over an existing connection, and returns the answer. The
// caller ends the talk. An error that the other side reports is final.
func (p *puncher) ask(ctx context.Context, id peer.ID, q punchAsk) (*punchTalk, punchAnswer, error) {
	var a punchAnswer
	raw, err := p.swarm.NewStream(network.WithNoDial(ctx, "punch"), id)
	if err != nil {
		return nil, a, err
	}
	t := &punchTalk{raw, context.AfterFunc(ctx, func() { _ = raw.Reset() })}
	s := newLazyStream(raw, punchProtocol)
	err = errors.Join(raw.SetProtocol(punchProtocol), raw.SetDeadline(time.Now().Add(p.slowness*punchTime)))
	if err == nil {
		err = exchange(s, q, &a)
	}
	if err == nil && a.Error != "" {
		err = final{errors.New(a.Error[:min(len(a.Error), maxPunchError)])}
	}
	if err != nil {
		t.end()
		return nil, a, fmt.Errorf("ask %s for hole punching: %w", id.ShortString(), err)
	}
	return t, a, nil
}

// exchange writes a question and reads its answer.
func exchange(s io.ReadWriter, q punchAsk, a *punchAnswer) error {
	if err := json.NewEncoder(s).Encode(q); err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(s, maxPunch)).Decode(a)
}
