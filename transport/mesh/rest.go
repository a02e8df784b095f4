package mesh

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/transport/internal/wire"
)

// usualIdle is the usual Config.Idle.
const usualIdle = 15 * time.Second

// rest is the state of a pair that may rest. A pair that was made on demand rests when it has not
// been used for Config.Idle: the view ends on its lanes, and the lanes end when no view has used
// them for the same time again. Whoever needs the pair later makes it anew, as a pair that never
// was. A planned pair never rests, as revocations are passed on over it.
//
// The higher rank begins, as it is the one that opens the lanes of a pair. It writes Rest, its last
// frame in the view, on the data stream, and the lower rank answers with the same. Then both write
// End on the urgent stream. The lower rank forgets the pair before its End, and the higher rank
// when it has read that. So the lower rank has no pair when the higher rank opens lanes again.
type rest struct {
	// used is set when a frame of a call is written or read. writeSignals clears it.
	used atomic.Bool
	wake chan struct{} // has a token when used was set
	// written is set when this side writes Rest. The writer whose turn it is sets it.
	written atomic.Bool
	both    chan struct{} // closed when both sides have written Rest
	gone    chan struct{} // closed when this side has forgotten the pair
}

// newRest returns the state of a pair that has just begun.
func newRest() rest {
	return rest{wake: make(chan struct{}, 1), both: make(chan struct{}), gone: make(chan struct{})}
}

// touch notes that the pair is used.
func (r *rest) touch() {
	// The first look is cheaper than the swap, which every frame would pay for.
	if r.used.Load() || r.used.Swap(true) {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// isMutual reports whether both sides have written Rest.
func (r *rest) isMutual() bool {
	select {
	case <-r.both:
		return true
	default:
		return false
	}
}

// begins reports whether this side begins the rest of the pair with a rank.
func (d *lazyPairs) begins(rank int) bool { return rank < d.a.self && !d.a.planned[rank] }

// beginRest asks the peer to let the pair rest. It returns false if the pair is in use: if a message
// waits for its receive the reader may be paused, and would not see the answer.
func (p *pair) beginRest() bool {
	at, err := p.takeTurn(context.Background(), 0)
	if err != nil {
		return true // the view is over
	}
	defer p.endTurn(at)
	if p.rest.used.Load() || !p.t.box.IsQuiet(p.rank) {
		return false
	}
	p.rest.written.Store(true)
	_ = p.data.write(&wire.Header{Kind: wire.Rest}, nil) // the reader finds out about an error
	return true
}

// takeRest handles the Rest of the peer: the answer to that of this side, or the question. A rank
// that needs the pair answers all the same, and makes the pair anew. It returns false if the peer
// must not send Rest.
func (p *pair) takeRest() bool {
	if p.rest.written.Load() {
		close(p.rest.both)
		return true
	}
	if p.rank < p.t.self || p.t.lazy.a.planned[p.rank] {
		return false
	}
	at := p.data.writers.enqueue(math.MaxInt32)
	<-at.turn
	defer p.data.writers.release(at)
	// After a failure finish writes the last frame.
	if p.t.box.Cause() != nil {
		return true
	}
	p.writing.Store(true)
	defer p.writing.Store(false)
	p.rest.written.Store(true)
	if p.data.writeWithin(turnTime, wire.Header{Kind: wire.Rest}, nil) == nil {
		close(p.rest.both)
	} else {
		p.t.Revoke(p.lost("connection closed"))
	}
	return true
}

// leave ends the view on the lanes of a pair that rests, and forgets the pair. It returns false if
// the view is over: then the pair ends as others do.
func (d *lazyPairs) leave(p *pair) bool {
	if !d.hold() {
		return false
	}
	defer d.holds.Done()
	lower := p.t.self < p.rank
	if lower {
		d.forget(p)
	}
	p.t.lanes.endView(p.lanes[dataStream])
	p.dataOver <- true
	whole := p.endUrgent(true)
	p.t.lanes.endView(p.lanes[urgentStream])
	p.urgentOver <- whole
	if !lower {
		select {
		case <-p.urgentEnded:
		case <-d.life.Done():
		}
		d.forget(p)
	}
	return true
}

// forget removes a pair that rests. If a receive waits for the peer it makes the pair anew: the death
// of the peer would go unnoticed without one. Signals that came too late for the pair are lost.
func (d *lazyPairs) forget(p *pair) {
	d.t.pairs[p.rank].Store(nil)
	close(p.rest.gone)
	if !d.t.box.IsQuiet(p.rank) {
		d.need(p.rank)
	}
}
