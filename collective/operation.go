package collective

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// errPanicked is the cause of a revocation if the goroutine of a call panics or exits. The panic
// itself propagates in its goroutine.
var errPanicked = errors.New("panic in a call")

// errNoContext is the error of calls with a nil context.
var errNoContext = fmt.Errorf("%w: the context is nil", ErrArgument)

// operation is a call in progress at this rank. One goroutine carries out the call; the watchdog
// reads the atomic fields. A call is tracked or untracked. The watchdog sees only tracked calls,
// and Close waits only for them (see tracker).
type operation struct {
	*Comm
	env          transport.Envelope // identifies the messages of the call
	peer         int                // other rank of a point-to-point call, as a rank of the transport; -1 for AnySource, and for other calls
	sends        bool               // the call is a Send
	match        *matching          // of a receive or Probe that chooses its message when it has arrived; nil for other calls
	needsBarrier bool               // see plan
	blocking     bool               // the caller waits for the end of the call, so no other collective call can begin
	begin        time.Duration      // since endpoint.started
	lastMessage  atomic.Int64       // time of the last message in either direction, as a duration since endpoint.started
	recvFrom     atomic.Int32       // rank of the transport from which the call receives, plus 1; 0 for none
	sendTo       atomic.Int32       // rank of the transport to which the call sends, plus 1; 0 for none
	untracked    bool               // the call began untracked
	tracked      atomic.Bool        // the call is tracked; otherwise begin and lastMessage are not set
	ctx          context.Context    // of the caller; nil before runBody
	unwatch      func() bool        // stops watching the end of ctx; nil if ctx is not watched
	guard        *guard             // watches the end of ctx for a queued call; nil for other calls
	lock         *ticketLock        // ticket lock that the call takes; nil for none
	ticket       uint32             // ticket of this call for the lock
	scratch      []*[]uint64        // pooled memory, returned at the end
	watch        *watchState        // owned by the watchdog; nil until the watchdog sees the call
	number       uint64             // of the call in Options.Record; 0 if it is not recorded
}

// describe fills in the fields that come from the communicator and the description of the
// call. The caller fills in the place in the sequence.
func (o *operation) describe(c *Comm, call *transport.Call) {
	o.Comm = c
	o.env.Comm, o.env.Call, o.env.Priority = c.id, *call, c.priority
}

// record records the begin of the call in Options.Record, unless the call is a part of another call. The caller holds
// endpoint.mu.
func (o *operation) record() {
	r := o.opts.Record
	if r == nil || o.seq.part {
		return
	}
	at := o.begin
	if !o.tracked.Load() {
		at = time.Since(o.started)
	}
	o.number = r.Begin(&flight.Begun{Envelope: &o.env, Purpose: o.purpose, Peer: o.peer, Sends: o.sends, Background: !o.blocking, At: at})
}

// segment returns the maximum bytes of a message of the call.
func (o *operation) segment() int { return int(o.env.Call.Segment) }

// execute runs the call to its end. Every error revokes, and so does a panic of a user's reduction:
// otherwise the other ranks would wait for this rank for ever. argErr is the error of the call's
// arguments, plan.err.
func (o *operation) execute(ctx context.Context, argErr error, body func(*operation) error) error {
	// panicked stays set if body panics or calls runtime.Goexit, as both skip the assignment below.
	panicked := true
	var err error
	defer func() {
		if panicked {
			err = errPanicked
			o.revoke(err)
		}
		o.end(err)
	}()
	err = o.checkAndRun(ctx, argErr, body)
	panicked = false
	if err != nil {
		o.revoke(err)
	}
	return err
}

// checkAndRun carries out the call unless its arguments or its context make it fail at once. It
// wraps an error with the description of the call.
func (o *operation) checkAndRun(ctx context.Context, argErr error, body func(*operation) error) error {
	err := argErr
	switch {
	case ctx == nil:
		ctx, err = context.Background(), errNoContext
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = o.runBody(ctx, body)
	}
	if err == nil {
		return nil
	}
	// The end of ctx revokes, so err may be the revocation. The returned error must also wrap the
	// cause of the end.
	if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return &callError{fmt.Errorf("%v (call %d): %w", o.env.Call, o.env.Seq&^pointBit, err)}
}

// runBody runs the body under ctx. The transport gets no context: the end of ctx revokes, once for
// the whole call, so that no message needs to watch ctx.
func (o *operation) runBody(ctx context.Context, body func(*operation) error) error {
	o.ctx = ctx
	if !o.untracked {
		o.watchContext()
	}
	if err := body(o); err != nil {
		return err
	}
	if o.size == 1 || !o.needsBarrier || o.lock != nil { // with a lock, the body itself waits for all ranks
		return nil
	}
	return o.disseminate()
}

// watchContext begins to watch the call's context. When the context ends, the communicator is
// revoked. For an untracked call the watch begins only when the call is about to sleep, because to
// start the watch takes as long as a short call.
func (o *operation) watchContext() {
	if o.unwatch == nil && o.guard == nil && o.ctx != nil && o.ctx.Done() != nil {
		ep, ctx := o.endpoint, o.ctx
		o.unwatch = context.AfterFunc(ctx, func() { ep.revoke(context.Cause(ctx)) })
	}
}

// releaseLock passes the lock to the next call before this call ends. well is false after a
// failure.
func (o *operation) releaseLock(well bool) {
	o.lock.release(well)
	o.lock = nil
}

// end releases everything that the call holds: its lock, its pooled memory, its place in the
// sequence, and the watching of its context. Afterwards o may be reused. err is the error of the call.
func (o *operation) end(err error) {
	if o.lock != nil {
		o.lock.release(err == nil)
	}
	for _, words := range o.scratch {
		o.pools.put(words)
	}
	ep, disarm := o.endpoint, o.unwatch // after unregister o may be another call
	now := time.Since(ep.started)
	if o.number != 0 {
		ep.opts.Record.End(o.number, now, err)
	}
	ep.mu.Lock()
	if o.seq.running == o {
		o.seq.running = nil
	}
	if o.blocking && !o.seq.part {
		ep.blocked--
	}
	o.seq.dropIfLast(o)
	o.seq.dropMatching(o.match)
	if o.guard != nil {
		disarm = o.guard.unref()
	}
	tracked := ep.unregister(o, now)
	ep.mu.Unlock()
	if disarm != nil {
		disarm()
	}
	if tracked {
		ep.working.Done()
	}
}

// blocksProgram reports whether a call counts as blocking the program: it has been in progress for
// stall.AskAfter or longer, and is not an ISend or IRecv. These two may stay in progress for ever:
// for example, an IRecv for a message that is never sent.
func (o *operation) blocksProgram(now time.Duration) bool {
	return now-o.begin >= stall.AskAfter && (o.env.Call.Kind != transport.KindPoint || o.blocking)
}

// ring describes this rank's position in the ring for package ring.
func (o *operation) ring() ring.Ring {
	left, right := o.order.neighbours(o.rank, o.size)
	return ring.Ring{Link: &ringLink{o: o, left: left, right: right}, Rank: o.rank, Size: o.size, Order: o.order.ranks,
		Segment: o.segment(), Memory: o.words}
}

// awaited appends the ranks for which o waits. A Send or Recv waits for its peer, also before it has
// sent or received anything. A Recv from AnySource waits for none until it has chosen its message.
func (o *operation) awaited(all []int) []int {
	if o.peer >= 0 {
		return append(all, o.peer)
	}
	for _, rank := range []int32{o.recvFrom.Load(), o.sendTo.Load()} {
		if rank > 0 {
			all = append(all, int(rank)-1)
		}
	}
	return all
}

// blockingWait returns the wait that blocks o: its own wait, or, if o waits for no rank, the wait
// of the oldest call that blocks this rank.
func (o *operation) blockingWait() *stall.Wait {
	x := &o.watch.wait
	if !x.Waits() && x.Oldest != nil {
		return x.Oldest
	}
	return x
}

// send sends buf to a rank of the communicator, in segments; an empty buf is one message. The
// receiver receives the same segments.
func (o *operation) send(to int, buf []byte) error {
	return o.forSegments(buf, func(segment []byte) error { return o.sendSegment(to, segment) })
}

// recv is the receiving half of send.
func (o *operation) recv(from int, buf []byte) error {
	return o.forSegments(buf, func(segment []byte) error { return o.recvSegment(from, segment) })
}

// forSegments calls do with each segment of buf in turn, at least once.
func (o *operation) forSegments(buf []byte, do func([]byte) error) error {
	for {
		n := min(len(buf), o.segment())
		if err := do(buf[:n:n]); err != nil {
			return err
		}
		if buf = buf[n:]; len(buf) == 0 {
			return nil
		}
	}
}

// sendSegment sends one message. While it waits, the watchdog can see the receiver in sendTo.
func (o *operation) sendSegment(to int, buf []byte) error {
	peer := o.transportRank(to)
	o.sendTo.Store(int32(peer + 1))
	if err := o.t.Send(context.Background(), peer, o.env, buf); err != nil {
		return err
	}
	o.sendTo.Store(0)
	o.recordProgress()
	return nil
}

// recvSegment receives one message. While it waits, the watchdog can see the sender in recvFrom.
func (o *operation) recvSegment(from int, buf []byte) error {
	peer := o.transportRank(from)
	o.recvFrom.Store(int32(peer + 1))
	if err := o.t.Recv(context.Background(), peer, o.env, buf); err != nil {
		return err
	}
	o.recvFrom.Store(0)
	o.recordProgress()
	return nil
}

// recordProgress records that a message was sent or received. If the wait for the message was long
// enough to matter (stall.MinRelevant), the adaptive timeout records the wait.
func (o *operation) recordProgress() {
	if !o.tracked.Load() {
		return
	}
	now := time.Since(o.started)
	wait := now - time.Duration(o.lastMessage.Swap(int64(now)))
	if wait < stall.MinRelevant {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit.RecordWait(wait, now)
}

// exchange sends out and receives in at the same time. A transport may block a Send until the
// receiver calls Recv, so two ranks that both send first would deadlock. A second goroutine sends
// if there are several segments. For one segment no goroutine is started, as its start would take
// longer than a short message.
func (o *operation) exchange(to int, out []byte, from int, in []byte) error {
	if max(len(out), len(in)) <= o.segment() {
		return o.exchangeSegment(to, out, from, in)
	}
	sent := make(chan error, 1)
	go func() { sent <- o.send(to, out) }()
	err := o.recv(from, in)
	if err != nil {
		o.revoke(err) // otherwise the send might wait for a rank whose call has failed
	}
	if serr := <-sent; err == nil {
		err = serr
	}
	return err
}

// swap exchanges v with a vector of equal length at partner, segment by segment. room receives one
// segment. done is called with each range of bytes of v that was sent, when the same range of the
// partner's vector is in room; done may change these bytes of v.
func (o *operation) swap(partner int, v, room []byte, done func(first, end int)) error {
	if len(v) <= o.segment() {
		if err := o.exchangeSegment(partner, v, partner, room); err != nil {
			return err
		}
		done(0, len(v))
		return nil
	}
	sent := make(chan error, len(v)/o.segment()+1)
	go func() {
		defer close(sent)
		err := o.forSegments(v, func(segment []byte) error {
			err := o.sendSegment(partner, segment)
			sent <- err
			return err
		})
		if err != nil {
			o.revoke(err) // otherwise the receive might wait for ever
		}
	}()
	return o.swapIn(partner, v, room, sent, done)
}

// swapIn is the receiving half of swap. When it returns, no send uses v any more.
func (o *operation) swapIn(partner int, v, room []byte, sent <-chan error, done func(first, end int)) (err error) {
	err = errPanicked // done calls the user's reduction, which may panic
	defer func() {
		if err != nil {
			o.revoke(err) // otherwise a send might wait for ever
		}
		for range sent {
		}
	}()
	for first := 0; first < len(v); first += o.segment() {
		end := min(first+o.segment(), len(v))
		if err := o.recvSegment(partner, room[:end-first]); err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
		done(first, end)
	}
	return nil
}

// exchangeSegment is exchange with one message in each direction. It needs no goroutine: the
// receive is posted before the send.
func (o *operation) exchangeSegment(to int, out []byte, from int, in []byte) error {
	peer := o.transportRank(from)
	o.recvFrom.Store(int32(peer + 1))
	received := o.t.Post(peer, o.env, in)
	err := o.sendSegment(to, out)
	if rerr := received.Wait(context.Background()); err == nil {
		err = rerr // a failed Send revokes, so the receive ends as well
	}
	if err != nil {
		return err
	}
	o.recvFrom.Store(0)
	o.recordProgress()
	return nil
}

// disseminate is a dissemination barrier: no rank returns before all ranks have begun the
// call. It takes ceil(lg n) steps of empty messages (Hensgen, Finkel, Manber 1988).
func (o *operation) disseminate() error {
	for d := 1; d < o.size; d *= 2 {
		to, from := (o.rank+d)%o.size, (o.rank-d+o.size)%o.size
		if err := o.exchange(to, nil, from, nil); err != nil {
			return err
		}
	}
	return nil
}

// exchangeWhole is exchange for ranks that may not agree on the lengths. The last message of a
// transfer is always shorter than a segment: an empty message follows a full segment. So a receiver
// that expects another length gets a message of another length, which is a mismatch. Otherwise a
// receiver would not see the messages beyond its own length.
func (o *operation) exchangeWhole(to int, out []byte, from int, in []byte) error {
	if err := o.exchange(to, out, from, in); err != nil {
		return err
	}
	sends, receives := o.endsFull(out), o.endsFull(in)
	switch {
	case sends && receives:
		return o.exchange(to, nil, from, nil)
	case sends:
		return o.send(to, nil)
	case receives:
		return o.recv(from, nil)
	}
	return nil
}

// endsFull reports whether the last segment of buf is a full one.
func (o *operation) endsFull(buf []byte) bool { return len(buf) > 0 && len(buf)%o.segment() == 0 }

// transfer sends buf from one rank to another, unless they are the same.
func (o *operation) transfer(from, to int, buf []byte) error {
	switch {
	case from == to:
		return nil
	case o.rank == from:
		return o.send(to, buf)
	case o.rank == to:
		return o.recv(from, buf)
	}
	return nil
}

// shift sends the bytes of out to rank o.rank+d, and receives from rank o.rank-d into in, if these
// ranks exist.
func (o *operation) shift(d int, out, in []byte) error {
	up, down := o.rank+d, o.rank-d
	switch {
	case up < o.size && down >= 0:
		return o.exchange(up, out, down, in)
	case up < o.size:
		return o.send(up, out)
	case down >= 0:
		return o.recv(down, in)
	}
	return nil
}

// scratch returns n elements of unspecified value. The call owns them until it ends.
func scratch[T Number](o *operation, n int) []T {
	return kernel.View[T](o.words(kernel.Words[T](n)), n)
}

// words returns pooled memory of at least n words. The call owns it until it ends.
func (o *operation) words(n int) []uint64 {
	w := o.pools.get(n)
	o.scratch = append(o.scratch, w)
	return *w
}
