package trainer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/optim"
)

// reducer reduces the gradients over all ranks. For each session it divides the gradients into
// buckets, moves the operands into memory that the ranks of a host share, and chooses the order of
// the ring.
type reducer struct {
	// layout is the layout of the gradients, with the buckets of the session.
	layout      layout
	bucketBytes int                    // Gradients.BucketBytes
	sums        accumulator            // this peer's gradients
	coded       *compressedAccumulator // the same accumulator as sums if there is a lossy coding, otherwise nil
	links       linkMonitor            // measures links and chooses the order of the ring
	// shared is the memory of the operands that the ranks of this host share.
	shared sharedBuffers
	words  int    // of a rank in the commit record
	poll   func() // lets calls under way make progress
	emit   func(epoch uint64, step int64, body event.Body)
	log    func(format string, args ...any)
}

// enter prepares for a session.
func (r *reducer) enter(s *elastic.Session) {
	r.migrate(s.Comm)
	r.divide(s.View)
}

// migrate moves the operands of reductions into the session's shared memory, if the session has
// some and they are not there yet. Private memory works as well, but costs a copy. So a lack of
// shared memory is logged once, and is no error.
func (r *reducer) migrate(c *collective.Comm) {
	old := r.shared
	if !c.SharesMemory() || old.comm != nil && c.SameMemory(old.comm) && (old.full || old.reachableBy(c)) {
		return
	}
	now := sharedBuffers{comm: c, previous: old.allocations}
	if err := r.sums.migrate(&now); err != nil {
		r.log("gradients stay in private memory, and reductions copy them: %v", errors.Join(err, freeExcept(now.allocations, old.allocations)))
		r.shared.comm, r.shared.full = c, true
		return
	}
	_ = freeExcept(old.allocations, now.allocations) // an error is harmless: the memory ends with the process
	now.previous = nil
	r.shared = now
}

// leave frees all shared memory.
func (r *reducer) leave() error { return freeExcept(r.shared.allocations, nil) }

// divide divides the gradients into buckets for a session. Between hosts the last buckets are
// short, because no computation overlaps with their reduction. Within a host, and with compression,
// they are as long as the others: there the cost of a call exceeds the cost of its bytes. A ring
// sends each bucket in as many parts as there are hosts, so buckets are shorter between few hosts.
func (r *reducer) divide(v elastic.View) {
	const ring = 4 // the least number of hosts with which buckets have their full length
	limit := r.bucketBytes / 4
	least := leastBucket
	if hosts := slices.Max(v.Hosts()) + 1; hosts == 1 || r.coded != nil {
		least = limit
	} else {
		limit = max(limit*min(hosts, ring)/ring, 1)
	}
	r.layout.divide(limit, least)
}

// start begins the reduction of a step's gradients when none of them is complete. It also logs a
// new order of the ring, and sends link probes while the step is computed.
func (r *reducer) start(ctx context.Context, s *elastic.Session, step int64) *reduction {
	l := &r.links
	if l.pendingOrder != nil && isReporter(s) {
		r.emit(s.View.Epoch, step, *l.pendingOrder)
	}
	l.pendingOrder = nil
	for _, n := range l.dueEvents(time.Now()) {
		r.emit(s.View.Epoch, step, n)
	}
	l.probe()
	o := collective.CallOptions{Order: l.order}
	if l.slowLinkElsewhere && l.site == nil { // with sites, only one rank of each site is in the ring
		// Other algorithms would use the slow link, which the ring avoids.
		o.Algorithm = collective.Ring
	}
	ordered := s.Comm.With(o)
	sums := newReduction(r.layout, func(b bucket) pending { return r.reduce(ctx, s.Comm, ordered, b) })
	sums.yield = r.poll
	return sums
}

// reduce begins the reduction of a bucket. More urgent buckets may interrupt it, except while
// links are measured: interruptible messages are cut into pieces too short to measure the speed
// of a link.
func (r *reducer) reduce(ctx context.Context, plain, ordered *collective.Comm, b bucket) pending {
	return r.sums.reduce(ctx, bucketComm{ordered, plain, collective.CallOptions{
		For:           fmt.Sprintf("bucket %d of %d", b.number+1, len(r.layout.buckets)),
		Priority:      r.layout.priority(b),
		Interruptible: r.links.meter == nil,
	}}, b)
}

// bucketComm makes the communicators for the calls of a bucket.
type bucketComm struct {
	ordered *collective.Comm // with the order of the ring chosen by the link monitor
	// plain is the communicator of the session, with its default options.
	plain   *collective.Comm
	options collective.CallOptions
}

// long returns the communicator for the elements of the bucket.
func (b bucketComm) long() *collective.Comm { return b.ordered.With(b.options) }

// short returns the communicator for vectors of a few words that are reduced along with a bucket.
func (b bucketComm) short() *collective.Comm { return b.plain.With(b.options) }

// between reports whether members of the session are on different hosts.
func (r *reducer) between() bool { return r.links.spansHosts() }

// exchangeReports completes this peer's report with facts about the session, reduces the commit
// record, and returns the reports of all ranks. Success proves that every rank has made this call,
// and so has completed all calls before it.
func (r *reducer) exchangeReports(ctx context.Context, s *elastic.Session, mine rankReport) ([]rankReport, error) {
	mine.stale, mine.links = s.Stale(), r.links.measure()
	words := make([]int64, len(s.View.Members)*r.words)
	mine.encode(words, s.Rank, r.words)
	if err := collective.AllReduce(ctx, s.Comm.With(collective.CallOptions{For: "commit record"}), words, words, collective.Sum[int64]); err != nil {
		return nil, fmt.Errorf("commit record after step %d: %w", mine.committed, err)
	}
	return decodeReports(words, r.words), nil
}

// learn records the link measurements of all ranks.
func (r *reducer) learn(slots []rankReport) { r.links.learn(slots) }

// bytes returns the encoded length of this peer's gradients, in bytes.
func (r *reducer) bytes() int { return r.coded.bytes(r.layout) }

// giveUp discards the error feedback of compression at this peer, and logs the norm of the error
// unless it is 0. It is called when the error belongs to a state that was replaced, or when this
// peer leaves. last is the mean gradient of the last step, for comparison.
func (r *reducer) giveUp(why string, last [][]float32) {
	if norm := r.coded.forget(); norm > 0 {
		r.log("%s: this peer discards the coding error of compression, of norm %.3g (the mean gradient of the last step has norm %.3g)",
			why, norm, optim.Norm(last))
	}
}

// pending is a reduction under way, for example a *collective.Handle.
type pending interface {
	Wait(ctx context.Context) error
}

// reduction manages the reduction of one step's buckets. It starts buckets strictly in the layout's
// order, so that all ranks make the same calls in the same order, even if their models complete
// gradients in different orders.
type reduction struct {
	layout  layout
	start   func(bucket) pending // starts the reduction of a bucket
	yield   func()               // lets calls under way make progress
	from    []int                // by parameter: the gradient is complete from this element on
	started []pending            // by bucket
	err     error                // the model's mistake
}

// newReduction returns a reduction without complete gradients; start starts the reduction of a
// bucket.
func newReduction(l layout, start func(bucket) pending) *reduction {
	r := &reduction{layout: l, start: start, yield: runtime.Gosched, from: make([]int, len(l.params))}
	for i, p := range l.params {
		r.from[i] = len(p.Data)
	}
	return r
}

// ready records that the elements [from:] of the gradient of parameter i are complete, and starts
// every bucket whose turn has come. The model calls ready through Batch.Done.
//
// A call that was just started has sent nothing yet. If the model computes on the only processor,
// the first send would wait until the scheduler preempts the model, 10 to 20 ms later. So ready
// yields until the calls block on the network. The yield also handles messages that have arrived for
// other calls.
func (r *reduction) ready(i, from int) {
	if i < 0 || i >= len(r.from) || from < 0 || from >= r.from[i] {
		r.err = errors.Join(r.err, fmt.Errorf("the model called Done(%d, %d) out of range, twice or out of order: call it once for each part, in descending order of from", i, from))
		return
	}
	r.from[i] = from
	before := len(r.started)
	// Buckets start in one order at all ranks, as collective calls must. A bucket that is complete
	// early waits for those before it.
	for len(r.started) < len(r.layout.buckets) && r.complete(r.layout.buckets[len(r.started)]) {
		r.started = append(r.started, r.start(r.layout.buckets[len(r.started)]))
	}
	if len(r.started) > before {
		r.yield()
	}
}

// complete reports whether all gradients of a bucket are complete.
func (r *reduction) complete(b bucket) bool {
	for i := b.firstParam; i < b.endParam; i++ {
		if lo, _ := r.layout.part(b, i); r.layout.offsets[i]+r.from[i] > lo {
			return false
		}
	}
	return true
}

// startAll starts the remaining buckets, when nothing is left to compute.
func (r *reduction) startAll() {
	for i, from := range r.from {
		if from > 0 {
			r.ready(i, 0)
		}
	}
}

// waitFor waits for the sums of the elements [from, end) of parameter i. Their buckets must have
// been started.
func (r *reduction) waitFor(ctx context.Context, i, from, end int) error {
	first := r.layout.offsets[i]
	for k, b := range r.layout.buckets {
		if b.hi <= first+from || b.lo >= first+end {
			continue
		}
		if err := r.started[k].Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the sums of the elements [from, end) of parameter i have arrived.
func (r *reduction) has(i, from, end int) bool {
	now, cancel := context.WithCancel(context.Background())
	cancel() // with an ended context waitFor only polls
	return r.waitFor(now, i, from, end) == nil
}

// wait waits for all started calls and returns the first error. No call that uses the buffers is
// left under way: the end of ctx ends the calls, but not this wait.
func (r *reduction) wait(ctx context.Context) error {
	var first error
	for k, p := range r.started {
		if err := p.Wait(context.WithoutCancel(ctx)); err != nil && first == nil {
			first = fmt.Errorf("reduce bucket %d of %d: %w", k+1, len(r.layout.buckets), err)
		}
	}
	return first
}
