package elastic

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// outboxSize is how many control messages wait for one member. Any may be lost, and
	// the newest matter most: when there are more the oldest goes.
	outboxSize = 64
	// sendPatience is how long one message may take, with connecting: on a loaded machine
	// a handshake takes its time. Silence is judged meanwhile.
	sendPatience = 10 * time.Second
)

// failed is a message that could not be sent.
type failed struct {
	to  ID
	err error
}

// outboxes sends control messages without making the sender wait: a goroutine per
// peer, which ends when it has been idle.
type outboxes struct {
	network  Network
	failures chan failed // the reader must keep reading until stop returns
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	queue map[ID][][]byte // of peers whose goroutine runs
}

func newOutboxes(n Network) *outboxes {
	o := &outboxes{network: n, failures: make(chan failed, 16), queue: make(map[ID][][]byte)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// send queues a message, which the outbox owns from then on.
func (o *outboxes) send(to ID, msg []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, running := o.queue[to]
	if len(q) >= outboxSize {
		q = q[1:]
	}
	o.queue[to] = append(q, msg)
	if !running && o.ctx.Err() == nil {
		o.work.Go(func() { o.run(to) })
	}
}

// take returns the next message, or nil, with which the caller's goroutine is over.
func (o *outboxes) take(to ID) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue[to]
	if len(q) == 0 || o.ctx.Err() != nil {
		delete(o.queue, to)
		return nil
	}
	o.queue[to] = q[1:]
	return q[0]
}

// run sends until there is nothing left.
func (o *outboxes) run(to ID) {
	for msg := o.take(to); msg != nil; msg = o.take(to) {
		ctx, cancel := context.WithTimeout(o.ctx, sendPatience)
		err := o.network.Send(ctx, to, msg)
		cancel()
		if err == nil {
			continue
		}
		select {
		case o.failures <- failed{to, err}:
		case <-o.ctx.Done():
		}
	}
}

// gone reports whether the receiver is certainly not there.
func (f failed) gone() bool { return errors.Is(f.err, ErrGone) }

// stop drops what waits and ends the goroutines.
func (o *outboxes) stop() {
	o.cancel()
	o.work.Wait()
}
