package collective

import (
	"sync"
	"sync/atomic"
)

// ticketLock serialises the calls that use the same resource, in the order in which they began. It
// is a ticket lock whose waiters sleep. Its release wakes only the next waiter (no thundering
// herd).
//
// A call gets its ticket under endpoint.mu, together with its place in the sequence. So all
// ranks serve their calls in the same order.
type ticketLock struct {
	key      pointKey                 // of Sends or Recvs; zero for other calls
	issued   uint32                   // number of tickets that were issued; guarded by endpoint.mu
	serving  atomic.Uint32            // ticket of the call that may proceed
	failed   atomic.Bool              // a call has failed, so the state of the resource is unknown
	sleepers atomic.Int32             // number of calls that sleep
	mu       sync.Mutex               // guards wakeups
	wakeups  map[uint32]chan struct{} // wake the calls that sleep, by ticket
}

// pointKey identifies Sends or Recvs whose messages have the same envelope key. Such calls must not
// run at the same time, as the transport could not distinguish their messages.
type pointKey struct {
	peer    int // rank of the transport at the other end
	tag     uint32
	sending bool
}

// nextTicket returns the next ticket. The caller holds endpoint.mu, so that tickets are issued in
// the order of the calls in the sequence.
func (t *ticketLock) nextTicket() uint32 {
	t.issued++
	return t.issued - 1
}

// acquire waits until the ticket of o is served. If an earlier call has failed, it returns the
// cause of the revocation: then the state of the resource is unknown.
func (t *ticketLock) acquire(o *operation) error {
	if t.serving.Load() != o.ticket {
		t.sleep(o.ticket)
	}
	if t.failed.Load() {
		return o.revocationCause()
	}
	return nil
}

// sleep sleeps until a ticket is served. It increments sleepers before it checks serving, and
// release advances serving before it checks sleepers. So at least one of the two sees the change of
// the other, and no wake-up is lost.
func (t *ticketLock) sleep(ticket uint32) {
	t.sleepers.Add(1)
	defer t.sleepers.Add(-1)
	if wakeup := t.wakeup(ticket); wakeup != nil {
		<-wakeup
	}
}

// wakeup returns a channel that is closed when the ticket is served, or nil if the ticket is served
// already or an earlier call has failed.
func (t *ticketLock) wakeup(ticket uint32) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.serving.Load() == ticket || t.failed.Load() {
		return nil
	}
	if t.wakeups == nil {
		t.wakeups = make(map[uint32]chan struct{})
	}
	c := make(chan struct{})
	t.wakeups[ticket] = c
	return c
}

// release lets the next call proceed. After a failure (well is false) it wakes all waiters, and all
// of them fail.
func (t *ticketLock) release(well bool) {
	if !well {
		t.failed.Store(true)
	}
	// Usually no call sleeps, and the lock is passed on without the mutex.
	next := t.serving.Add(1)
	if t.sleepers.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake(next)
	if !t.failed.Load() {
		return
	}
	for ticket := range t.wakeups {
		t.wake(ticket)
	}
}

// wake wakes the call with a ticket, if that call sleeps. The caller holds mu.
func (t *ticketLock) wake(ticket uint32) {
	if c := t.wakeups[ticket]; c != nil {
		close(c)
		delete(t.wakeups, ticket)
	}
}
