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

// finish ends the view on both streams. What it writes last depends on why the mailbox has failed:
//
//	cause        urgent stream         data stream
//	Close        Bye, then End         Bye
//	revocation   Revoke, then End      End, or a reset in the middle of a frame
//	mesh closed  End                   reset
//
// The peer answers a Bye or a Revoke by an Ack on the urgent stream, or has sent a Bye or Revoke
// itself. finish waits until the mailbox fails, then tells the peer, and at Close waits until the
// peer needs nothing more from this rank. Streams that were ended in good order stay for the next
// view.
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

// sayBye ends the data stream, and reports whether it has done so in good order. The announcement
// on the urgent stream makes the peer read on, so that a frame that is being written gets through.
// If that takes longer than turnTime, the peer has only a part of the message, so sayBye revokes
// the view at the peer.
func (p *pair) sayBye() bool {
	select {
	// The peer has said bye first, so this end need not announce its own bye.
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

// forwardCause tells the peer the cause of a revocation, then ends the data stream, and thus the
// reads and writes of this rank on it. It reports whether the stream was ended in good order.
func (p *pair) forwardCause(cause error) bool {
	select {
	case <-p.t.meshClosed:
		p.resetData() // connections end one by one: this rank must not blame others on those that are still open
		return false
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Revoke}, transport.EncodeCause(p.t.self, cause))
	return p.endData()
}

// endData ends the view on the data stream by a last frame, End, and returns true. If this rank is
// in the middle of writing or reading a frame, it resets the stream and returns false, so that
// buffers are free.
func (p *pair) endData() bool {
	whole := p.filling.tryLock()
	if whole {
		p.filling.Unlock() // the mailbox has failed: it accepts nothing any more
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

// endUrgent is the last user of the urgent stream: it waits for the turn, so that an answer to the
// peer that is being written comes before. It ends the view on the urgent stream by a last frame
// and returns true. If the peer still needs something from this rank, or the write fails, it resets
// the stream and returns false.
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

// resetData resets the data stream when the mesh closes. The carrier may not have ended it yet, as
// it may have a connection of its own.
func (p *pair) resetData() { _ = p.data.raw.Reset() }

// writeUrgent writes a frame on the urgent stream. Errors need no handling: a peer that does not
// get the frame sees the streams end.
func (p *pair) writeUrgent(h wire.Header, payload []byte) {
	at := p.urgent.writers.enqueue(0)
	<-at.turn
	if !p.urgentClosed {
		_ = p.urgent.writeWithin(urgentTime, h, payload)
	}
	p.urgent.writers.release(at)
}

// tryTurn takes the turn to write on the data stream after the mailbox has failed. It returns false
// if a frame is being written. A goroutine that has the turn without writing is about to give it
// up, so tryTurn waits for it.
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

// filling is the lock of a message that is read into the mailbox.
type filling struct {
	sync.Mutex
	reading atomic.Bool // the bytes of the message are being read; set under the lock
}

// tryLock locks after the mailbox has failed. It returns false if a message is being read. A reader
// that has the lock without reading is about to give it up, so tryLock waits for it.
func (f *filling) tryLock() bool {
	for !f.TryLock() {
		if f.reading.Load() {
			return false
		}
		runtime.Gosched()
	}
	return true
}
