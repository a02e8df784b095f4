package mesh

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

const (
	// parkTime is how long a stream that a peer opened waits until this host enters the view.
	parkTime = time.Minute
	// maxParked is how many streams of one peer may wait: the streams and one lane request for each
	// of two views.
	maxParked = 2 * (streamsPerPair + 1)
)

// parkedStream waits for a Connect of its view. Members learn of a new view at different times, so
// the first members send their hellos before the others enter the view. If a hello were refused,
// its sender would have to make another connection.
type parkedStream struct {
	peer    elastic.ID
	lineage [32]byte
	// claimed passes the attempt that claims the stream. It has room for one, so that claiming
	// never blocks.
	claimed chan *attempt
}

// viewTable has the views that this end is entering or is in, and the views that are over. It gives
// each stream that a peer opens to the attempt of the stream's view.
type viewTable struct {
	job  string // Config.Job
	life *lifetime

	// mu guards the fields below.
	mu       sync.Mutex
	attempts map[[32]byte]*attempt // the views that are being entered or are in use, by hash
	past     []pastView            // the views that are over, the latest last
	parked   []*parkedStream       // streams for views that this end has not entered, oldest first
	floor    uint64                // epochs below floor are over
}

// newViewTable returns the table of a process that has entered no view.
func newViewTable(job string, life *lifetime) *viewTable {
	return &viewTable{job: job, life: life, attempts: make(map[[32]byte]*attempt)}
}

// enter makes the attempt known to the handlers of streams, and gives it the parked streams of its
// view. From now on this end enters no view of an earlier epoch.
func (v *viewTable) enter(a *attempt) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	hash := a.hello.Lineage
	switch {
	case v.life.isOver():
		return errClosed()
	// Epochs only grow: an earlier view cannot be entered after a later one.
	case a.view.Epoch < v.floor:
		return fmt.Errorf("epoch %d is over", a.view.Epoch)
	case v.attempts[hash] != nil:
		return errors.New("this member is connecting to the view already")
	}
	v.attempts[hash] = a
	v.floor = a.view.Epoch
	v.parked = slices.DeleteFunc(v.parked, func(p *parkedStream) bool {
		if p.lineage != hash {
			return false
		}
		p.claimed <- a // never blocks: the stream is claimed once, as it leaves the table
		return true
	})
	return nil
}

// entered notes that an attempt has succeeded. This end enters no other view of its epoch.
func (v *viewTable) entered(a *attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.floor = max(v.floor, a.view.Epoch+1)
}

// forget forgets an attempt that has failed. This end may enter the view again.
func (v *viewTable) forget(a *attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// A second attempt for the same view may have begun meanwhile.
	if v.attempts[a.hello.Lineage] == a {
		delete(v.attempts, a.hello.Lineage)
	}
}

// waitingFor returns the attempts in which Connect may still wait for a lane with a peer.
func (v *viewTable) waitingFor(peer elastic.ID) (all []*attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range v.attempts {
		if rank := a.view.Rank(peer); rank >= 0 && a.planned[rank] && a.ctx.Err() == nil {
			all = append(all, a)
		}
	}
	return all
}

// attemptFor returns the attempt to which the hello g of a peer belongs. The attempt may have
// succeeded already: then the stream is for a pair that was not planned, or replaces a stream that
// its opener has given up. If the attempt has not begun, attemptFor waits until it begins. If there
// is no such attempt, it refuses or ends the stream, and returns nil.
func (v *viewTable) attemptFor(s Stream, from elastic.ID, g wire.Greeting) *attempt {
	a, parked, why, cause := v.find(from, g)
	if parked != nil {
		a = v.awaitClaim(parked)
	}
	switch {
	case why != accepted:
		refuse(s, why, cause)
	case a == nil:
		// A reset is no refusal, so the peer may open the stream again.
		_ = s.Reset()
	case !a.belongs(g, from):
		refuse(s, refused, nil)
	default:
		return a
	}
	return nil
}

// find returns the attempt to which the hello g belongs. If there is no attempt yet, it returns a
// parkedStream to wait on. If there cannot be an attempt, it returns the refusal, and with the
// refusal viewOver the cause. find looks for the hash of the view first, and uses the epoch only if
// the hash is unknown: two views of one epoch can exist on the two sides of a cut, and at most one
// of the two has a quorum.
func (v *viewTable) find(from elastic.ID, g wire.Greeting) (*attempt, *parkedStream, refusal, []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a := v.attempts[g.Lineage]; a != nil {
		return a, nil, accepted, nil
	}
	if cause, ok := v.pastLocked(g.Lineage); ok {
		return nil, nil, viewOver, cause
	}
	for _, a := range v.attempts {
		if a.view.Epoch == g.Epoch && g.Epoch >= v.floor {
			return nil, nil, refused, nil // this host is entering another view of the same epoch
		}
	}
	switch {
	case g.Job != v.job:
		return nil, nil, refused, nil
	case g.Epoch < v.floor || v.life.isOver():
		return nil, nil, stale, nil
	}
	// An attempt that begins from now on finds the stream in v.parked.
	p := &parkedStream{peer: from, lineage: g.Lineage, claimed: make(chan *attempt, 1)}
	v.parkLocked(p)
	return nil, p, accepted, nil
}

// awaitClaim returns the attempt that claims p. It returns nil if parkTime passes, the mesh
// closes, or the peer parks too many other streams.
func (v *viewTable) awaitClaim(p *parkedStream) *attempt {
	timer := time.NewTimer(parkTime)
	defer timer.Stop()
	select {
	case a := <-p.claimed:
		return a
	case <-timer.C:
	case <-v.life.ctx.Done():
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unparkLocked(p)
	return nil
}

// parkLocked adds p. If the peer has maxParked streams already, p replaces the oldest of them,
// because the peer has probably given up on that stream.
func (v *viewTable) parkLocked(p *parkedStream) {
	var oldest *parkedStream
	count := 0
	// parked is sorted by age, so the first one of the peer is its oldest.
	for _, o := range v.parked {
		if o.peer != p.peer {
			continue
		}
		if count++; oldest == nil {
			oldest = o
		}
	}
	v.parked = append(v.parked, p)
	if count >= maxParked {
		v.unparkLocked(oldest)
		oldest.claimed <- nil // never blocks: the stream is not claimed, as it was in the table
	}
}

// unparkLocked forgets p.
func (v *viewTable) unparkLocked(p *parkedStream) {
	v.parked = slices.DeleteFunc(v.parked, func(o *parkedStream) bool { return o == p })
}

// maxPast is how many finished views are remembered. A rank that opens a lane for such a view gets
// a refusal with the cause of its end.
const maxPast = 8

// pastView is a view that is over at this end. It serves peers with which no pair has begun: there
// was no stream to send them the cause, so they get it in a refusal.
type pastView struct {
	hash [32]byte
	// cause is the encoded cause of the revocation; it is empty if the view was closed.
	cause []byte
}

// retire forgets a view that is over, but remembers the cause. A second call has no effect.
func (v *viewTable) retire(a *attempt, cause []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	hash := a.hello.Lineage
	if v.attempts[hash] != a {
		return
	}
	delete(v.attempts, hash)
	v.past = append(v.past, pastView{hash, cause[:min(len(cause), maxCause)]})
	if len(v.past) > maxPast {
		// A peer that asks for an older view gets the refusal stale.
		v.past = v.past[1:]
	}
}

// maxCause is the longest cause in a refusal, in bytes. EncodeCause makes only shorter causes.
const maxCause = 500

// pastLocked returns the cause with which the view of this hash has ended, if it is remembered.
func (v *viewTable) pastLocked(hash [32]byte) (cause []byte, ok bool) {
	for _, p := range v.past {
		if p.hash == hash {
			return p.cause, true
		}
	}
	return nil, false
}
