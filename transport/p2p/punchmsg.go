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

// What members tell each other to make a way through routers, one question and answer on a stream:
//
//	asks                                            answers
//	by this credential: where am I seen?       ->   takes requests of its holder
//	                                           <-   its port of UDP
//	by this credential: I am at one of these   ->   asks members where it is seen itself
//	                                           <-   I am at one of these; looks for the other
//	I cannot look for a way, because           ->   does not wait for it
//
// It ends with the stream. Over the connection that was made the asking side makes sure that the other
// has it, too.

const (
	// maxPunch is how many bytes a message may have.
	maxPunch = 4 << 10
	// maxPunchError is how many bytes of the other side's reason are told.
	maxPunchError = 200
)

// punchAsk is a question; without addresses it is the first one.
type punchAsk struct {
	Here       bool             `json:"here,omitempty"` // nothing but whether this arrives
	Error      string           `json:"error,omitempty"`
	Credential punch.Credential `json:"credential"`
	Addrs      []netip.AddrPort `json:"addrs,omitempty"`
}

// punchAnswer is the answer.
type punchAnswer struct {
	Error string           `json:"error,omitempty"`
	Port  uint16           `json:"port,omitempty"`
	Addrs []netip.AddrPort `json:"addrs,omitempty"`
}

// punchTalk is a question in progress.
type punchTalk struct {
	s    network.Stream
	stop func() bool
}

// end tells the other side that it is not needed any more.
func (t *punchTalk) end() {
	t.stop()
	_ = t.s.Reset()
}

// ask asks a member on a stream of its own, over the connection that there is.
func (p *puncher) ask(ctx context.Context, id peer.ID, q punchAsk) (*punchTalk, punchAnswer, error) {
	var a punchAnswer
	raw, err := p.h.swarm.NewStream(network.WithNoDial(ctx, "punch"), id)
	if err != nil {
		return nil, a, err
	}
	t := &punchTalk{raw, context.AfterFunc(ctx, func() { _ = raw.Reset() })}
	s := &lazyStream{Stream: raw, proposal: proposalOf(punchProtocol)}
	err = errors.Join(raw.SetProtocol(punchProtocol), raw.SetDeadline(time.Now().Add(p.slowness*punchTime)))
	if err == nil {
		err = exchange(s, q, &a)
	}
	if err == nil && a.Error != "" {
		err = final{errors.New(a.Error[:min(len(a.Error), maxPunchError)])}
	}
	if err != nil {
		t.end()
		return nil, a, fmt.Errorf("ask %s for a way through routers: %w", id.ShortString(), err)
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

// acceptPunch handles the stream of a member that asks.
func (h *Host) acceptPunch(s network.Stream) {
	defer s.Reset()
	if s.SetDeadline(time.Now().Add(h.punch.slowness*punchTime)) != nil {
		return
	}
	var q punchAsk
	if json.NewDecoder(io.LimitReader(s, maxPunch)).Decode(&q) != nil {
		return
	}
	id := s.Conn().RemotePeer()
	if q.Here || q.Error != "" {
		if q.Error != "" {
			h.punch.start(id, true)(fmt.Errorf("the other side: %s", q.Error[:min(len(q.Error), maxPunchError)]))
		}
		if json.NewEncoder(s).Encode(punchAnswer{}) == nil {
			waitEnd(s)
		}
		return
	}
	socket, err := h.punch.open()
	switch {
	case err != nil:
		if len(q.Addrs) > 0 {
			h.punch.start(id, true)(err)
		}
		if json.NewEncoder(s).Encode(punchAnswer{Error: err.Error()}) == nil {
			waitEnd(s)
		}
	case len(q.Addrs) == 0:
		end := socket.Serve(q.Credential)
		defer end()
		if json.NewEncoder(s).Encode(punchAnswer{Port: socket.port}) == nil {
			waitEnd(s)
		}
	default:
		end := h.punch.start(id, true)
		end(h.punch.follow(s, id, socket, q))
	}
}

// follow does its part in an attempt that the other side leads.
func (p *puncher) follow(s network.Stream, id peer.ID, socket *punchSocket, q punchAsk) error {
	ctx, cancel := context.WithTimeout(p.h.life, p.slowness*punchTime)
	defer cancel()
	own := socket.gather(ctx, id)
	m := socket.Meet(punch.Meeting{Credential: q.Credential, Candidates: q.Addrs, Account: p.account(id)})
	defer p.leave(m, id)
	if err := json.NewEncoder(s).Encode(punchAnswer{Addrs: own.addrs}); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		waitEnd(s) // at the latest at the deadline
	}()
	_, err := m.Found(ctx)
	<-over
	switch {
	case !p.h.onlyRelayed(id):
		return nil
	case err == nil:
		err = errors.New("no connection by UDP, though there is a way through the routers")
	}
	return own.explain(err)
}

// waitEnd waits until the other side ends a stream.
func waitEnd(s network.Stream) { _, _ = s.Read(make([]byte, 1)) }
