package mesh

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/internal/wire"
)

// finish ends the view on both streams. The last frames depend on why the mailbox has failed:
//
//	cause        urgent stream         data stream
//	Close        Bye, then End         Bye
//	revocation   Revoke, then End      End, or a reset in the middle of a frame
//	mesh closed  End                   reset
//
// The peer answers a Bye or a Revoke by an Ack on the urgent stream, or has sent a Bye or Revoke
// itself. finish waits until the mailbox fails, then informs the peer, and at Close waits until the
// peer needs nothing more from this rank. Streams that were ended in good order are kept for the
// next view.
func (p *pair) finish() {
	select {
	case <-p.t.box.Failed():
	case <-p.t.meshClosed:
		p.resetData() // so the reader makes the mailbox fail
		<-p.t.box.Failed()
	}
	cause := p.t.box.Cause()
	whole := false
	if cause != p.t.closedErr {
		whole = p.forwardCause(cause)
	}
	select {
	case <-p.t.closing:
	case <-p.t.meshClosed: // nothing is sent to peers any more
	}
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	if cause == p.t.closedErr {
		whole = p.sayBye()
	}
	settled := true
	select {
	case <-p.peerDone:
	case <-timer.C:
		settled = false
	}
	whole = p.stopFilling() && whole && settled
	if !whole {
		_ = p.data.raw.Reset()
	}
	p.t.lanes.endView(p.lanes[dataStream])
	p.dataOver <- whole
	whole = p.endUrgent(settled)
	p.t.lanes.endView(p.lanes[urgentStream])
	p.urgentOver <- whole
}

// stopFilling waits until nothing is read into the mailbox any more. If a message is being read, it
// resets the stream and returns false.
func (p *pair) stopFilling() bool {
	empty := p.filling.tryLock()
	if !empty {
		_ = p.data.raw.Reset()
		p.filling.Lock()
	}
	p.filling.Unlock()
	return empty
}

// sayBye ends the view on the data stream by a Bye, and reports whether that was in good order. The
// announcement on the urgent stream makes the peer read on, so that a Send or signal that is being
// written can finish. If that takes longer than turnTime, the peer has only a part of the message,
// so sayBye revokes the view at the peer.
func (p *pair) sayBye() bool {
	select {
	// The peer has said bye first. So this side announces nothing, and its last frame is End.
	case <-p.left:
		return p.endData()
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Bye}, nil)
	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	at := p.data.writers.enqueue(0)
	select {
	case <-p.left:
		p.data.writers.cancel(at)
		return p.endData()
	case <-at.turn:
		defer p.data.writers.release(at)
	case <-timer.C:
		p.data.writers.cancel(at)
		return p.forwardCause(&transport.PeerError{Rank: p.t.self, Peer: p.t.names[p.t.self], Cause: "closed while sending"})
	}
	return p.data.writeWithin(closeTime, wire.Header{Kind: wire.Bye}, nil) == nil
}

// forwardCause sends the cause of a revocation to the peer, then ends the view on the data stream.
// It reports whether the stream was ended in good order.
func (p *pair) forwardCause(cause error) bool {
	select {
	case <-p.t.meshClosed:
		p.resetData() // the mesh ends its connections one by one, so the cause may blame a peer without reason
		return false
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Revoke}, transport.EncodeCause(p.t.self, cause))
	return p.endData()
}

// endData ends the view on the data stream by a last frame, End, and returns true. If this rank is
// in the middle of writing or reading a message, endData resets the stream and returns false, so
// that the buffers of the message are free.
func (p *pair) endData() bool {
	whole := p.filling.tryLock()
	if whole {
		p.filling.Unlock() // the mailbox has failed, so it accepts no message any more
		at, idle := p.tryTurn()
		if whole = idle; idle {
			whole = p.data.writeWithin(turnTime, wire.Header{Kind: wire.End}, nil) == nil
			p.data.writers.release(at)
		}
	}
	if !whole {
		_ = p.data.raw.Reset()
	}
	return whole
}

// endUrgent ends the view on the urgent stream by a last frame, and returns true. No frame is
// written after that. An answer to the peer that is being written comes before, because endUrgent
// waits for the turn. If the peer still needs something from this rank, or the write fails,
// endUrgent resets the stream and returns false.
func (p *pair) endUrgent(settled bool) bool {
	at := p.urgent.writers.enqueue(0)
	<-at.turn
	defer p.urgent.writers.release(at)
	p.urgentClosed = true
	if settled && p.urgent.writeWithin(urgentTime, wire.Header{Kind: wire.End}, nil) == nil {
		return true
	}
	_ = p.urgent.raw.Reset()
	return false
}

// resetData resets the data stream when the mesh closes. If the data stream has a connection of its
// own, the carrier may not have ended that connection yet.
func (p *pair) resetData() { _ = p.data.raw.Reset() }

// writeUrgent writes a frame on the urgent stream. It ignores errors: a peer that does not get the
// frame sees the streams end.
func (p *pair) writeUrgent(h wire.Header, payload []byte) {
	at := p.urgent.writers.enqueue(0)
	<-at.turn
	if !p.urgentClosed {
		_ = p.urgent.writeWithin(urgentTime, h, payload)
	}
	p.urgent.writers.release(at)
}

// tryTurn takes the turn to write on the data stream after the mailbox has failed. It returns false
// if a frame is being written. A goroutine that has the turn without writing is about to release
// it, so tryTurn waits for that goroutine.
func (p *pair) tryTurn() (*ticket, bool) {
	// The highest priority: messages that wait belong to calls that have failed.
	at := p.data.writers.enqueue(math.MaxInt32)
	for {
		select {
		case <-at.turn:
			return at, true
		default:
		}
		if p.writing.Load() {
			p.data.writers.cancel(at)
			return nil, false
		}
		runtime.Gosched()
	}
}

// filling is a lock that is held while a message is read into the mailbox.
type filling struct {
	sync.Mutex
	reading atomic.Bool // the bytes of the message are being read; set under the lock
}

// tryLock locks after the mailbox has failed. It returns false if a message is being read. A reader
// that has the lock without reading is about to release it, so tryLock waits for that reader.
func (f *filling) tryLock() bool {
	for !f.TryLock() {
		if f.reading.Load() {
			return false
		}
		runtime.Gosched()
	}
	return true
}
