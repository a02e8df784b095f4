package elastic

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// sendQueueSize bounds the control messages that wait for one peer. Any message may be lost,
	// and the newest are the most useful: a full queue drops the oldest.
	sendQueueSize = 64
	// sendPatience bounds the time to send one message, including the connection: on a loaded
	// machine a handshake may take seconds. The failure detector does not wait for it.
	sendPatience = 10 * time.Second
)

// failed is a message that could not be sent.
type failed struct {
	to  ID
	err error
}

// sendQueues sends control messages without blocking the caller. Each receiver has a queue and a
// goroutine, which ends when the queue is empty. The messages to one peer keep their order, and an
// unreachable peer does not delay messages to other peers.
type sendQueues struct {
	network  Network
	failures chan failed // must be read until stop returns
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	queue map[ID][][]byte // by peer; a peer with an entry has a running goroutine
}

// newSendQueues returns queues that send over n.
func newSendQueues(n Network) *sendQueues {
	o := &sendQueues{network: n, failures: make(chan failed, 16), queue: make(map[ID][][]byte)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// send queues a message. The queue owns msg afterwards.
func (s *sendQueues) send(to ID, msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, running := s.queue[to]
	if len(q) >= sendQueueSize {
		q = q[1:]
	}
	s.queue[to] = append(q, msg)
	if !running && s.ctx.Err() == nil {
		s.work.Go(func() { s.run(to) })
	}
}

// take removes and returns the next message. If it returns nil, the caller's goroutine must end.
func (s *sendQueues) take(to ID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue[to]
	if len(q) == 0 || s.ctx.Err() != nil {
		delete(s.queue, to)
		return nil
	}
	s.queue[to] = q[1:]
	return q[0]
}

// run sends the messages to one peer until its queue is empty.
func (s *sendQueues) run(to ID) {
	for msg := s.take(to); msg != nil; msg = s.take(to) {
		ctx, cancel := context.WithTimeout(s.ctx, sendPatience)
		err := s.network.Send(ctx, to, msg)
		cancel()
		if err == nil {
			continue
		}
		select {
		case s.failures <- failed{to, err}:
		case <-s.ctx.Done():
		}
	}
}

// gone reports whether the receiver is certainly gone.
func (f failed) gone() bool { return errors.Is(f.err, ErrGone) }

// stop drops the waiting messages and waits for the goroutines.
func (s *sendQueues) stop() {
	s.cancel()
	s.work.Wait()
}
