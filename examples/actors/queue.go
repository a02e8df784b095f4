package main

import (
	"context"
	"sync"
)

// Play is one game: the machine, the probabilities with which it was chosen, and its payout.
type Play struct {
	Machine int
	Chances [machines]float64
	Paid    float64
}

// Plays is a message with games. Over says that no more are wanted.
type Plays struct {
	Games []Play
	Over  bool
}

// queue is the state of the service: games for the learners, and the latest policy. It exists only
// in the process of the service.
type queue struct {
	games chan Play

	mu     sync.Mutex
	policy Policy
	over   chan struct{} // closed when the learners have finished
}

// queueLength is the maximum number of waiting games; a full queue makes actors wait
// (backpressure).
const queueLength = 4096

// newQueue returns an empty queue.
func newQueue() *queue {
	return &queue{games: make(chan Play, queueLength), over: make(chan struct{})}
}

// put adds an actor's games to the queue. It returns false if the learners have finished and want
// no more games.
func (q *queue) put(ctx context.Context, p Plays) (bool, error) {
	for _, g := range p.Games {
		select {
		case q.games <- g:
		case <-q.over:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// take removes n games, but at most queueLength, from the queue for a learner. It waits until the
// queue has had as many games.
func (q *queue) take(ctx context.Context, n int) (Plays, error) {
	var p Plays
	for range min(n, queueLength) {
		select {
		case g := <-q.games:
			p.Games = append(p.Games, g)
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
	return p, nil
}

// latest returns the latest policy.
func (q *queue) latest(context.Context, int64) (Policy, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.policy, nil
}

// learnt stores the learners' policy, unless the queue has a later one.
func (q *queue) learnt(_ context.Context, p Policy) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.Final && !q.policy.Final {
		close(q.over)
	}
	if p.Step >= q.policy.Step {
		p.Final = p.Final || q.policy.Final
		q.policy = p
	}
	return true, nil
}
