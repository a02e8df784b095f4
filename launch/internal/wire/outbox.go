package wire

import "sync"

// Outbox is a queue of messages for a reader that may be slow, or stopped for hours. Adding never
// blocks. Each class of messages except result has a bound, and messages beyond the bound are
// dropped. When the reader reads again, it gets one message with the number of dropped messages in
// their place.
//
// It is safe for concurrent use. One goroutine runs the writer:
//
//	Add --> waiting --> Run --> socket
type Outbox struct {
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
	class Class
	// sent is closed when the socket has taken the message.
	sent chan struct{}
	lost int // number of messages dropped at this place
}

// Class says which messages may be dropped.
type Class int

const (
	Transient Class = iota // repeated later: dropped without being counted
	Telemetry              // one of many: steps, stalls, paths
	History                // changes of the group
	Result                 // needed for the job's result: never dropped
	classes
)

// bound returns the number of bytes of a class that may wait, 0 for no bound.
func (c Class) bound() int {
	return [classes]int{Transient: 16 << 10, Telemetry: 1 << 20, History: 16 << 20}[c]
}

// NewOutbox returns an empty outbox. dropNotice makes the message about dropped messages; it may be
// nil.
func NewOutbox(dropNotice func(lost int) []byte) *Outbox {
	return &Outbox{dropNotice: dropNotice, wake: make(chan struct{}, 1)}
}

// Add queues a line and returns a channel that is closed when the socket has it. The channel is nil
// if the reader is slow or the line was dropped. From then on the outbox owns line.
func (o *Outbox) Add(line []byte, c Class) <-chan struct{} {
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

// ReaderLate records that the reader has not taken a message in time. Until the queue is empty, Add
// returns nil, so that nobody waits for the reader.
func (o *Outbox) ReaderLate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readerSlow = len(o.waiting) > 0
}

// drops reports whether a message of n bytes exceeds the bound of its class. mu is held.
func (o *Outbox) drops(c Class, n int) bool {
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
func (o *Outbox) countDropped(c Class) {
	if c == Transient || o.dropNotice == nil {
		return
	}
	if n := len(o.waiting); n == 0 || o.waiting[n-1].lost == 0 {
		o.waiting = append(o.waiting, outgoing{class: c, sent: make(chan struct{})})
		o.wakeWriter()
	}
	o.waiting[len(o.waiting)-1].lost++
}

// wakeWriter wakes the writer. mu is held.
func (o *Outbox) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run writes messages until close has been called and the queue is empty, or a write fails.
func (o *Outbox) Run(write func(line []byte) error) {
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
func (o *Outbox) first() (m outgoing, ok, end bool) {
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
func (o *Outbox) written(m outgoing) {
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

// Close makes Run end once the queue is empty.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wakeWriter()
}
