package launch

import "sync"

// outbox is a queue of messages for a reader that may be slow, or stopped for hours. Adding never
// blocks. Each class of messages except result has a bound, and messages beyond the bound are
// dropped. When the reader reads again, it gets one message with the number of dropped messages in
// their place.
//
// It is safe for concurrent use. One goroutine runs the writer:
//
//	add --> waiting --> run --> socket
type outbox struct {
	dropNotice func(lost int) []byte // returns the message about dropped messages; nil for no message
	wake       chan struct{}         // capacity 1: a signal that a message waits

	// mu guards the fields below. It is not held while a message is written.
	mu         sync.Mutex
	waiting    []outgoing    // oldest first
	bytes      [classes]int  // size of waiting, by class
	full       [classes]bool // the class drops messages until half of its bytes have been written
	readerSlow bool          // the reader has not taken a message in time, and messages still wait
	closed     bool          // no more messages are added
	broken     bool          // a write failed: the reader has gone
}

// outgoing is a queued message.
type outgoing struct {
	line  []byte // nil for a gap
	class class
	// sent is closed when the socket has taken the message.
	sent chan struct{}
	lost int // number of messages dropped at this place
}

// class says which messages may be dropped.
type class int

const (
	transient class = iota // repeated later: dropped without being counted
	telemetry              // one of many: steps, stalls, paths
	history                // changes of the group
	result                 // needed for the job's result: never dropped
	classes
)

// bound returns the number of bytes of a class that may wait, 0 for no bound.
func (c class) bound() int {
	return [classes]int{transient: 16 << 10, telemetry: 1 << 20, history: 16 << 20}[c]
}

// newOutbox returns an empty outbox. dropNotice makes the message about dropped messages; it may be
// nil.
func newOutbox(dropNotice func(lost int) []byte) *outbox {
	return &outbox{dropNotice: dropNotice, wake: make(chan struct{}, 1)}
}

// add queues a line and returns a channel that is closed when the socket has it. The channel is nil
// if the reader is slow or the line was dropped. From then on the outbox owns line.
func (o *outbox) add(line []byte, c class) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.broken {
		return nil
	}
	if o.drops(c, len(line)) {
		o.countDropped(c)
		return nil
	}
	sent := make(chan struct{})
	o.bytes[c] += len(line)
	o.waiting = append(o.waiting, outgoing{line: line, class: c, sent: sent})
	o.wakeWriter()
	// The line is queued, but the caller need not wait for a reader that is late already.
	if o.readerSlow {
		return nil
	}
	return sent
}

// readerLate records that the reader has not taken a message in time. Until the queue is empty, add
// returns nil, so that nobody waits for the reader.
func (o *outbox) readerLate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readerSlow = len(o.waiting) > 0
}

// drops reports whether a message of n bytes exceeds the bound of its class. mu is held.
func (o *outbox) drops(c class, n int) bool {
	bound := c.bound()
	switch {
	case bound == 0:
		return false
	case o.full[c]:
		// Hysteresis: a class that has overflowed drops messages until half of its bytes are
		// gone, so that the reader sees one long gap instead of many short ones.
		o.full[c] = o.bytes[c] > bound/2
	default:
		o.full[c] = o.bytes[c]+n > bound && o.bytes[c] > 0
	}
	return o.full[c]
}

// countDropped counts a dropped message in the gap at the end of the queue. mu is held.
func (o *outbox) countDropped(c class) {
	if c == transient || o.dropNotice == nil {
		return
	}
	if n := len(o.waiting); n == 0 || o.waiting[n-1].lost == 0 {
		o.waiting = append(o.waiting, outgoing{class: c, sent: make(chan struct{})})
		o.wakeWriter()
	}
	o.waiting[len(o.waiting)-1].lost++
}

// wakeWriter wakes the writer. mu is held.
func (o *outbox) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes messages until close has been called and the queue is empty, or a write fails.
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
			// Callers that wait for sent are released by their own time limit.
			o.broken, o.waiting = true, nil
			o.mu.Unlock()
			return
		}
		o.written(m)
	}
}

// first returns the next message. ok is false if the queue is empty; end is then true if no more
// messages will come. The message stays in the queue until written removes it, so that later
// messages wait behind it.
func (o *outbox) first() (m outgoing, ok, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return outgoing{}, false, o.closed
	}
	m = o.waiting[0]
	if m.lost > 0 {
		m.line = o.dropNotice(m.lost)
		o.waiting[0].lost = 0 // later losses count in a new gap
	}
	return m, true, false
}

// written removes the first message from the queue.
func (o *outbox) written(m outgoing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting[0].line != nil {
		o.bytes[m.class] -= len(m.line)
	}
	o.waiting[0] = outgoing{} // releases the memory of the line
	o.waiting = o.waiting[1:]
	o.readerSlow = o.readerSlow && len(o.waiting) > 0
	close(m.sent)
}

// close makes run end once the queue is empty.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wakeWriter()
}
