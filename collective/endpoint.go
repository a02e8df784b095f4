package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/elrun/elrun/collective/transport"
)

// endpoint is the state that all communicators over one transport share.
type endpoint struct {
	t        transport.Transport
	invalid  bool // there is no transport; see orInvalid
	self     int  // rank in the transport
	ranks    int  // number of ranks of the transport
	opts     Options
	stop     chan struct{} // closed by close; ends the watchdog
	shared   *memory       // memory of the ranks of this host; nil if there is none
	topology topology
	pools    pools // scratch memory of calls

	mu sync.Mutex // guards the following fields and the tracker
	tracker
	closed    bool                 // the communicator from New was closed
	cause     error                // the first cause of a revocation at this rank
	sequences map[uint64]*sequence // by ID of the communicator
	onNote    func(from int, note []byte)
}

// sequence returns the sequence of the communicator with an ID, and creates it if
// necessary.
func (ep *endpoint) sequence(id uint64, parent *sequence) *sequence {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.sequences[id]
	if s == nil {
		s = &sequence{parent: parent}
		ep.sequences[id] = s
	}
	return s
}

// close ends the transport and all communicators over it. Pending calls fail with ErrClosed. The
// memory that the ranks share is released only after the last goroutine of a call has ended,
// because a call may still use this memory. A second close does nothing and returns no error.
func (ep *endpoint) close() error {
	ep.mu.Lock()
	first := !ep.closed
	ep.closed = true
	ep.promote()
	ep.mu.Unlock()
	if !first {
		return nil
	}
	close(ep.stop)
	err := ep.t.Close()
	ep.working.Wait()
	if ep.shared != nil {
		err = errors.Join(err, ep.shared.Release())
	}
	if err != nil {
		return fmt.Errorf("collective: close: %w", err)
	}
	return nil
}

// revoke revokes the transport because of err. The cause is err itself if other ranks can decode it
// (*PeerError, *MismatchError), and otherwise an *AbortError of this rank with the text of err.
func (ep *endpoint) revoke(err error) {
	cause := causeOf(ep.self, err)
	ep.mu.Lock()
	if ep.cause == nil {
		ep.cause = cause
	}
	ep.mu.Unlock()
	ep.t.Revoke(cause)
}

// causeOf converts the error of a call at this rank to the cause of a revocation, which is sent to
// other ranks.
func causeOf(self int, err error) error {
	if isMistake(err) {
		err = &callError{err}
	}
	return transport.CauseOf(self, err)
}

// revocationCause returns the first cause of the revocation, as the error of a call that follows a
// failed call.
func (ep *endpoint) revocationCause() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.cause == nil {
		return ErrRevoked
	}
	return ep.cause
}

// queued returns the queued call with the communicator and the sequence number of e.
func (ep *endpoint) queued(e transport.Envelope) (c transport.Call, ok bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if s := ep.sequences[e.Comm]; s != nil {
		return s.queue.find(e.Seq)
	}
	return transport.Call{}, false
}

// hasBegun reports whether this rank has begun the collective call of e. If the call is not
// in progress, it has ended.
func (ep *endpoint) hasBegun(e transport.Envelope) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.sequences[e.Comm]
	return s != nil && int32((s.lastSeq-e.Seq)<<1) >= 0 // modulo 1<<31
}

// closedBefore reports whether this rank has closed the communicator of e without beginning the
// call, so that it can never begin the call.
func (ep *endpoint) closedBefore(e transport.Envelope) bool {
	if e.Seq&pointBit == 0 && ep.hasBegun(e) {
		return false
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.sequences[e.Comm].isClosed()
}

// sequence is the state that a communicator shares with the results of its With. It is guarded by
// endpoint.mu.
type sequence struct {
	lastSeq    uint32                   // number of collective calls so far; it may wrap, as only its bits below pointBit are used
	running    *operation               // the blocking collective call in progress; nil for none
	parent     *sequence                // sequence of the communicator from which Split made this communicator; nil if Split did not make it
	closed     bool                     // Comm.Close was called
	part       bool                     // its calls are parts of the calls of another communicator
	pointLocks map[pointKey]*ticketLock // ticket locks of Sends and Recvs in progress
	matchings  []*matching              // receives and Probes that have not chosen their message, the oldest first
	queue      queue                    // of non-blocking calls in shared memory
}

// next returns the number of the next collective call.
func (s *sequence) next() uint32 {
	s.lastSeq++
	return s.lastSeq &^ pointBit
}

// isClosed reports whether the communicator, or a communicator from which Split made it, was
// closed.
func (s *sequence) isClosed() bool {
	for ; s != nil; s = s.parent {
		if s.closed {
			return true
		}
	}
	return false
}

// pointBit marks the Seq of point-to-point messages. The bits below hold the user's tag;
// without the mark they hold the number of a collective call.
const pointBit = 1 << 31

// lockChanged tells the matchings that the lock of a key was created or deleted. The caller holds
// endpoint.mu.
func (s *sequence) lockChanged(k pointKey) {
	for _, m := range s.matchings {
		if m.asksFor(k) {
			m.expire()
		}
	}
}

// isAwaited reports whether a receive in the list asks for messages under a key. The caller holds
// endpoint.mu.
func (s *sequence) isAwaited(k pointKey) bool {
	return slices.ContainsFunc(s.matchings, func(m *matching) bool { return m.takes && m.asksFor(k) })
}

// dropMatching removes a matching from the list, unless it was removed before. Younger ones may now
// choose what it asked for. The caller holds endpoint.mu.
func (s *sequence) dropMatching(m *matching) {
	i := slices.Index(s.matchings, m)
	if i < 0 {
		return
	}
	s.matchings = slices.Delete(s.matchings, i, i+1)
	for _, younger := range s.matchings[i:] {
		younger.expire()
	}
}

// beginPoint gives a point-to-point call o its place: in the list of matchings, or in the queue of the
// calls with its peer and tag. The caller holds endpoint.mu.
func (s *sequence) beginPoint(o *operation, p *plan) {
	if p.peer >= 0 {
		o.peer = o.transportRank(p.peer)
	}
	key := pointKey{o.peer, uint32(p.tag), p.send}
	switch {
	case p.peer == NoRank:
	case p.probe, p.peer == AnySource, p.tag == AnyTag, s.isAwaited(key):
		o.match = &matching{from: o.peer, tag: p.tag, takes: !p.probe}
		if p.peer == AnySource {
			o.match.from = AnySource
		}
		s.matchings = append(s.matchings, o.match)
	default:
		s.lockFor(o, key)
	}
}

// lockFor issues a ticket for a Send or Recv, and creates the lock of its key if necessary.
// The caller holds endpoint.mu.
func (s *sequence) lockFor(o *operation, key pointKey) {
	if s.pointLocks == nil {
		s.pointLocks = make(map[pointKey]*ticketLock)
	}
	if s.pointLocks[key] == nil {
		s.pointLocks[key] = &ticketLock{key: key}
		s.lockChanged(key)
	}
	o.lock, o.ticket = s.pointLocks[key], s.pointLocks[key].nextTicket()
}

// dropIfLast deletes the lock of a key when its last Send or Recv ends. The caller holds
// endpoint.mu.
func (s *sequence) dropIfLast(o *operation) {
	if o.peer >= 0 && o.lock != nil && s.pointLocks[o.lock.key] == o.lock && o.lock.issued == o.ticket+1 {
		delete(s.pointLocks, o.lock.key)
		s.lockChanged(o.lock.key)
	}
}
