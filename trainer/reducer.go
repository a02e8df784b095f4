package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/optim"
)

// reducer has the gradients of all ranks added up: it cuts them into buckets for each session,
// keeps them in the memory that the ranks of a host share, and chooses the order of the ring.
type reducer struct {
	layout      layout
	bucketBytes int
	sums        accumulator            // this peer's gradients
	coded       *compressedAccumulator // sums, or nil where gradients travel as they are
	links       linkMonitor            // from which the order of the ring follows
	shared      sharedBuffers          // of the vectors that are reduced
	poll        func()                 // lets calls under way go on
	emit        func(epoch uint64, step int64, body event.Body)
	log         func(format string, args ...any)
}

// enter makes ready for a session.
func (r *reducer) enter(s *elastic.Session) {
	r.migrate(s.Comm)
	r.divide(s.View)
}

// migrate moves the vectors that are reduced into the memory of a session, if it has some
// and they are not there yet. Elsewhere they serve as well, which only takes longer: so
// that there is no room is told once, and is no error.
func (r *reducer) migrate(c *collective.Comm) {
	old := r.shared
	if !c.SharesMemory() || old.comm != nil && c.SameMemory(old.comm) && (old.full || old.reachableBy(c)) {
		return
	}
	now := sharedBuffers{comm: c, previous: old.allocations}
	if err := r.sums.migrate(&now); err != nil {
		r.log("gradients stay where they are, from where reductions copy them: %v", errors.Join(err, freeExcept(now.allocations, old.allocations)))
		r.shared.comm, r.shared.full = c, true
		return
	}
	_ = freeExcept(old.allocations, now.allocations) // what is not given back goes with the process
	now.previous = nil
	r.shared = now
}

// leave gives all shared memory back.
func (r *reducer) leave() error { return freeExcept(r.shared.allocations, nil) }

// divide cuts the gradients into buckets for a session. Between processes of one host a call
// takes longer than its bytes, and compressed gradients are short: there the last buckets
// are as long as others. A ring sends each bucket in as many parts as there are hosts, so that
// between a few hosts they are shorter.
func (r *reducer) divide(v elastic.View) {
	const ring = 4 // hosts, for which a bucket has its full length
	limit := r.bucketBytes / 4
	least := leastBucket
	if hosts := slices.Max(v.Hosts()) + 1; hosts == 1 || r.coded != nil {
		least = limit
	} else {
		limit = max(limit*min(hosts, ring)/ring, 1)
	}
	r.layout.divide(limit, least)
}

// start begins the reduction of a step's gradients, none of which is complete yet. It tells the
// log of an order that is new, and lets links be measured while the step is computed.
func (r *reducer) start(ctx context.Context, s *elastic.Session, step int64) *reduction {
	l := &r.links
	if l.pendingOrder != nil && isReporter(s) {
		r.emit(s.View.Epoch, step, *l.pendingOrder)
	}
	l.pendingOrder = nil
	l.probe()
	o := collective.CallOptions{Order: l.order}
	if l.slowLinkElsewhere && l.site == nil { // or it is one rank of each site that goes round
		o.Algorithm = collective.Ring
	}
	ordered := s.Comm.With(o)
	sums := newReduction(r.layout, func(b bucket) pending { return r.reduce(ctx, s.Comm, ordered, b) })
	sums.yield = r.poll
	return sums
}

// reduce begins the reduction of a bucket, which may overtake others. Where links are measured
// messages are not cut into pieces for that: short ones do not tell how fast a link is.
func (r *reducer) reduce(ctx context.Context, plain, ordered *collective.Comm, b bucket) pending {
	return r.sums.reduce(ctx, bucketComm{ordered, plain, collective.CallOptions{
		For:           fmt.Sprintf("bucket %d of %d", b.number+1, len(r.layout.buckets)),
		Priority:      r.layout.priority(b),
		Interruptible: r.links.meter == nil,
	}}, b)
}

// bucketComm is the communicator for the calls of a bucket.
type bucketComm struct {
	ordered *collective.Comm // as the links want it
	plain   *collective.Comm // as the session has it
	options collective.CallOptions
}

// long is for the elements of the bucket.
func (c bucketComm) long() *collective.Comm { return c.ordered.With(c.options) }

// short is for a few words that go with them.
func (c bucketComm) short() *collective.Comm { return c.plain.With(c.options) }

// between reports whether there is a network between members of the session.
func (r *reducer) between() bool { return r.links.spansHosts() }

// exchange exchanges the ranks' reports, to which it adds what all should know of the session.
func (r *reducer) exchange(ctx context.Context, s *elastic.Session, mine rankReport) ([]rankReport, error) {
	mine.stale, mine.links = s.Stale(), r.links.measure()
	return exchangeReports(ctx, s, mine)
}

// learn takes in what all have measured of the session's links.
func (r *reducer) learn(slots []rankReport) { r.links.learn(slots) }

// bytes is the length of this peer's gradients as they are sent.
func (r *reducer) bytes() int { return r.coded.bytes(r.layout) }

// giveUp drops what compression has held back at this peer, and says so where that was
// anything. last is the mean gradient of the last step.
func (r *reducer) giveUp(why string, last [][]float32) {
	if norm := r.coded.forget(); norm > 0 {
		r.log("%s: gives up gradients of norm %.3g that compression had held back (that of the last step is %.3g)",
			why, norm, optim.Norm(last))
	}
}
