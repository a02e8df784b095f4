package launch

import "sync"

// outbox holds the messages for a reader that may be slow, or stopped for hours. Adding to
// it never waits: each class of messages has a bound, and what is beyond it is counted. The
// reader learns of the gap, in its place, once it reads again.
//
// Any goroutine may add. One runs the writer:
//
//	add --> waiting --> run --> socket
type outbox struct {
	gap  func(lost int) []byte // the line about so many dropped messages; nil for none
	wake chan struct{}         // has a place for one sign that something is waiting

	mu      sync.Mutex
	waiting []outgoing
	bytes   [classes]int  // of waiting, by class
	full    [classes]bool // the class drops its messages until half of them are gone
	slow    bool          // the reader did not take a message in time, and some still wait
	closed  bool          // nothing more is added
	broken  bool          // a write failed: there is no reader
}

// outgoing is a message that waits.
type outgoing struct {
	line  []byte // nil for a gap
	class class
	sent  chan struct{} // closed when the socket has it
	lost  int           // messages that were dropped here
}

// class says how long a message may be missed.
type class int

const (
	transient class = iota // will be said again: dropped without being counted
	telemetry              // one of many: steps, stalls, paths
	history                // changes of the group
	result                 // the job's result hangs on it: never dropped
	classes
)

// bound returns how many bytes of a class may wait, 0 for any number.
func (c class) bound() int {
	return [classes]int{transient: 16 << 10, telemetry: 1 << 20, history: 16 << 20}[c]
}

func newOutbox(gap func(lost int) []byte) *outbox {
	return &outbox{gap: gap, wake: make(chan struct{}, 1)}
}

// add puts a line into the queue and returns what is closed when the socket has it; nil if
// the reader is slow, or the line was dropped.
func (o *outbox) add(line []byte, c class) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.broken {
		return nil
	}
	if o.drops(c, len(line)) {
		o.noteLost(c)
		return nil
	}
	sent := make(chan struct{})
	o.bytes[c] += len(line)
	o.waiting = append(o.waiting, outgoing{line: line, class: c, sent: sent})
	o.sign()
	if o.slow {
		return nil
	}
	return sent
}

// late notes that the reader did not take a message in time: nobody waits for it until it
// has taken all.
func (o *outbox) late() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slow = len(o.waiting) > 0
}

// drops reports whether a message of n bytes finds no room. mu is held.
func (o *outbox) drops(c class, n int) bool {
	bound := c.bound()
	switch {
	case bound == 0:
		return false
	case o.full[c]:
		o.full[c] = o.bytes[c] > bound/2
	default:
		o.full[c] = o.bytes[c]+n > bound && o.bytes[c] > 0
	}
	return o.full[c]
}

// noteLost counts a dropped message in the gap at the end of the queue. mu is held.
func (o *outbox) noteLost(c class) {
	if c == transient || o.gap == nil {
		return
	}
	if n := len(o.waiting); n == 0 || o.waiting[n-1].lost == 0 {
		o.waiting = append(o.waiting, outgoing{class: c, sent: make(chan struct{})})
		o.sign()
	}
	o.waiting[len(o.waiting)-1].lost++
}

// sign wakes the writer. mu is held.
func (o *outbox) sign() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes messages until close was called and none is left, or until a write fails.
func (o *outbox) run(write func(line []byte) error) {
	for {
		m, ok, end := o.first()
		switch {
		case end:
			return
		case !ok:
			<-o.wake
			continue
		}
		if err := write(m.line); err != nil {
			o.mu.Lock()
			o.broken, o.waiting = true, nil
			o.mu.Unlock()
			return
		}
		o.written(m)
	}
}

// first returns the message to be written next, false if none waits; end says that none will
// come. It stays in the queue until it is written: others that are added wait behind it.
func (o *outbox) first() (m outgoing, ok, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return outgoing{}, false, o.closed
	}
	m = o.waiting[0]
	if m.lost > 0 {
		m.line = o.gap(m.lost)
		o.waiting[0].lost = 0 // later losses are another gap
	}
	return m, true, false
}

// written takes the first message out of the queue.
func (o *outbox) written(m outgoing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting[0].line != nil {
		o.bytes[m.class] -= len(m.line)
	}
	o.waiting[0] = outgoing{} // gives the line free
	o.waiting = o.waiting[1:]
	o.slow = o.slow && len(o.waiting) > 0
	close(m.sent)
}

// close ends run once all that waits is written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.sign()
}
