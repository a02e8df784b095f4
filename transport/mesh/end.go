package mesh

import (
	"math"
	"runtime"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
)

// finish ends the view on both streams: it waits for the mailbox to fail, tells the peer, and
// at Close waits until the peer has what it needs. Streams that were ended in good order stay for the
// next view.
func (p *pair) finish() {
	select {
	case <-p.t.box.Failed():
	case <-p.t.host:
		p.sever() // and the reader makes the mailbox fail
		<-p.t.box.Failed()
	}
	cause := p.t.box.Cause()
	whole := false
	if cause != p.t.ended {
		whole = p.passOn(cause)
	}
	select {
	case <-p.t.closing:
	case <-p.t.host: // nobody is told anything any more
	}
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	if cause == p.t.ended {
		whole = p.sayBye()
	}
	settled := true
	select {
	case <-p.settled:
	case <-timer.C:
		settled = false
	}
	whole = p.isEmptied() && whole && settled
	if !whole {
		_ = p.data.raw.Reset()
	}
	p.t.lanes.leave(p.lanes[dataStream])
	p.dataOver <- whole
	whole = p.endUrgent(settled)
	p.t.lanes.leave(p.lanes[urgentStream])
	p.urgentOver <- whole
}

// isEmptied makes sure that nothing is read into the mailbox any more. It returns false if that took the
// end of the stream.
func (p *pair) isEmptied() bool {
	empty := p.filling.TryLock()
	if !empty {
		_ = p.data.raw.Reset()
		p.filling.Lock()
	}
	p.filling.Unlock()
	return empty
}

// sayBye ends the data stream in good order, and reports whether it has. The announcement on the
// urgent stream makes the peer read on, so that what is being written does get through; if it does
// not, the peer lacks half a message and is revoked.
func (p *pair) sayBye() bool {
	select {
	case <-p.left:
		return p.endData()
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Bye}, nil)
	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	at := p.data.writers.join(0)
	select {
	case <-p.left:
		p.data.writers.quit(at)
		return p.endData()
	case <-at.turn:
		defer p.data.writers.leave(at)
	case <-timer.C:
		p.data.writers.quit(at)
		return p.passOn(&transport.PeerError{Rank: p.t.self, Peer: p.t.names[p.t.self], Cause: "closed while sending"})
	}
	return p.data.writeWithin(closeTime, wire.Header{Kind: wire.Bye}, nil) == nil
}

// passOn tells the peer the cause of a revocation, then ends the data stream, and with it what
// this rank reads and writes there. It reports whether that was in good order.
func (p *pair) passOn(cause error) bool {
	select {
	case <-p.t.host:
		p.sever() // all connections end one by one, and those still open must not blame others
		return false
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Revoke}, transport.EncodeCause(p.t.self, cause))
	return p.endData()
}

// endData ends the view on the data stream behind its last frame, and reports true. If this rank is in
// the middle of a frame, which it writes or reads, it resets the stream: buffers have to be free.
func (p *pair) endData() bool {
	whole := p.filling.TryLock()
	if whole {
		p.filling.Unlock() // the mailbox has failed: it takes nothing any more
		at, idle := p.tryTurn()
		if whole = idle; idle {
			whole = p.data.writeWithin(turnTime, wire.Header{Kind: wire.End}, nil) == nil
			p.data.writers.leave(at)
		}
	}
	if !whole {
		_ = p.data.raw.Reset()
	}
	return whole
}

// endUrgent ends the view on the urgent stream, if the peer needs nothing more that is said there, and
// reports whether it has.
func (p *pair) endUrgent(settled bool) bool {
	at := p.urgent.writers.join(0)
	<-at.turn
	defer p.urgent.writers.leave(at)
	p.silent = true
	if settled && p.urgent.writeWithin(urgentTime, wire.Header{Kind: wire.End}, nil) == nil {
		return true
	}
	_ = p.urgent.raw.Reset()
	return false
}

// sever ends the data stream along with the mesh, also where it has a connection of its own.
func (p *pair) sever() { _ = p.data.raw.Reset() }

// writeUrgent writes a frame on the urgent stream. There is no error to see to: a peer
// that cannot be told sees the streams end.
func (p *pair) writeUrgent(h wire.Header, payload []byte) {
	at := p.urgent.writers.join(0)
	<-at.turn
	if !p.silent {
		_ = p.urgent.writeWithin(urgentTime, h, payload)
	}
	p.urgent.writers.leave(at)
}

// tryTurn takes the turn to write on the data stream when the mailbox has failed, unless a frame is being
// written. Who has the turn and does not write is about to give it up.
func (p *pair) tryTurn() (*place, bool) {
	at := p.data.writers.join(math.MaxInt32)
	for {
		select {
		case <-at.turn:
			return at, true
		default:
		}
		if p.writing.Load() {
			p.data.writers.quit(at)
			return nil, false
		}
		runtime.Gosched()
	}
}
