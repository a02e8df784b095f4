package mesh

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// waiter is a writer that has joined a queue.
type waiter struct {
	ticket   *ticket
	priority int32
}

// slowQueue is a simple and slow model of a queue. Each of its methods also calls the queue.
type slowQueue struct {
	q     *writerQueue
	here  []waiter // in the order in which they came
	owner *ticket  // the ticket whose turn it is, or nil
	open  bool     // the turn is kept for a writer of a higher priority than all waiting writers
	later []func() // the functions that the queue has passed to afterYield
}

func newSlowQueue() *slowQueue {
	s := &slowQueue{q: newWriterQueue()}
	s.q.afterYield = func(f func()) { s.later = append(s.later, f) }
	return s
}

func (s *slowQueue) join(t *rapid.T, priority int32) {
	p := s.q.enqueue(priority)
	if slices.ContainsFunc(s.here, func(v waiter) bool { return v.ticket == p }) {
		t.Fatal("two writers have one ticket")
	}
	first := s.owner == nil && (!s.open || priority > s.most())
	s.here = append(s.here, waiter{p, priority})
	if first {
		s.owner, s.open = p, false
	}
}

// most returns the highest priority of the writers in the list here.
func (s *slowQueue) most() int32 {
	return slices.MaxFunc(s.here, func(a, b waiter) int { return cmp.Compare(a.priority, b.priority) }).priority
}

// leave lets the owner write and leave.
func (s *slowQueue) leave() {
	if s.owner == nil {
		return
	}
	p, priority := s.owner, s.owner.priority
	<-p.turn
	s.q.release(p)
	s.remove(p)
	s.owner = nil
	if s.open = len(s.here) > 0 && s.most() < priority; !s.open {
		s.next()
	}
}

// wait calls the functions that the queue has passed to afterYield.
func (s *slowQueue) wait() {
	for _, f := range s.later {
		f()
	}
	if s.later = nil; s.open {
		s.open = false
		s.next()
	}
}

// quit lets one of the writers in the list here give up. It may be the owner, before it has begun to write.
func (s *slowQueue) quit(t *rapid.T) {
	if len(s.here) == 0 {
		return
	}
	v := rapid.SampledFrom(s.here).Draw(t, "who")
	s.q.cancel(v.ticket)
	s.remove(v.ticket)
	if s.owner == v.ticket {
		s.next()
	}
	if len(s.here) == 0 {
		s.wait()
	}
}

// remove removes a writer that has gone.
func (s *slowQueue) remove(p *ticket) {
	s.here = slices.DeleteFunc(s.here, func(v waiter) bool { return v.ticket == p })
}

// next gives the turn to the writer of the highest priority, and among equal priorities to the
// first that came.
func (s *slowQueue) next() {
	s.owner = nil
	if len(s.here) > 0 {
		s.owner = slices.MaxFunc(s.here, func(a, b waiter) int { return cmp.Compare(a.priority, b.priority) }).ticket
	}
}

// check checks that the queue has given a token to the owner, and to nobody else.
func (s *slowQueue) check(t *rapid.T) {
	for i, v := range s.here {
		if mayWrite := len(v.ticket.turn) == 1; mayWrite != (v.ticket == s.owner) {
			t.Fatalf("number %d of %v may write: %v, want %v", i, s.here, mayWrite, !mayWrite)
		}
	}
}

// In whatever order writers come and go, one writer at a time may write. The next writer is the
// first that came among those of the highest priority. A writer that comes back in time precedes
// waiting writers of lower priority. The synctest bubble would find a call that blocks.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid would ask a *testing.T for its deadline, which bubbles forbid.
		rapid.Check(struct{ *testing.T }{t}, func(t *rapid.T) {
			s := newSlowQueue()
			t.Repeat(map[string]func(*rapid.T){
				"join":  func(t *rapid.T) { s.join(t, rapid.Int32Range(-1, 2).Draw(t, "priority")) },
				"leave": func(*rapid.T) { s.leave() },
				"quit":  s.quit,
				"wait":  func(*rapid.T) { s.wait() },
				"":      s.check,
			})
			for len(s.here) > 0 {
				s.leave()
				s.wait()
				s.check(t)
			}
			s.join(t, 0) // the last writer has left the queue open
			s.check(t)
		})
	})
}

// Of writers that come and go at the same time one writes at a time, and none waits for ever. Some
// writers check whether they have the turn, and cancel while the turn may be coming.
func TestQueueOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, rounds = 16, 300
		q := newWriterQueue()
		inside, wrote := 0, 0 // only the writer whose turn it is accesses them: the race detector would find a second one
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range rounds {
					p := q.enqueue(int32(i % 3))
					runtime.Gosched()
					if i%4 == w%4 && len(p.turn) == 0 {
						q.cancel(p)
						continue
					}
					<-p.turn
					if inside++; inside != 1 {
						t.Errorf("%d write at a time", inside)
					}
					runtime.Gosched()
					inside--
					wrote++
					q.release(p)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if least := writers * rounds / 4 * 3; wrote < least || q.busy || len(q.waiting) > 0 {
			t.Errorf("%d wrote, at least %d want to; at the end busy: %v, %d wait", wrote, least, q.busy, len(q.waiting))
		}
	})
}
