package collective

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
)

// errPanicked is the cause of a revocation if the goroutine of a call panics or exits. The panic
// itself propagates in its goroutine.
var errPanicked = errors.New("panic in a call")

// errNoContext is the error of calls with a nil context.
var errNoContext = fmt.Errorf("%w: the context is nil", ErrArgument)

// plan is a call that has not begun: its description, and the work of this rank.
type plan struct {
	call    transport.Call
	tag     int                    // of a point-to-point call; may be AnyTag
	peer    int                    // other rank of a point-to-point call, as a rank of the communicator; may be AnySource or NoRank; else -1
	send    bool                   // the call is a Send
	probe   bool                   // the call is a Probe
	message *Message               // the body of an IRecv stores the description of its message here; else nil
	err     error                  // error of the first bad argument; it fails the call and revokes
	body    func(*operation) error // sends, receives and reduces
	// needsBarrier is set for calls that can end at one rank before another rank has begun them.
	// Such calls end with a barrier of empty messages (see disseminate).
	needsBarrier bool
}

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
}

// run carries out a blocking call.
func (c *Comm) run(ctx context.Context, p plan) error {
	return c.execute(ctx, &p, p.body)
}

// execute is run with the body as a parameter. A body in the plan would be allocated on the heap,
// which costs more time than a short call.
func (c *Comm) execute(ctx context.Context, p *plan, body func(*operation) error) error {
	o, err := c.begin(p, true)
	if err == nil {
		err = o.execute(ctx, p.err, body)
	}
	if err != nil {
		c.reportError(err)
	}
	return err
}

// reportError reports the error of a call to Options.OnError, before the caller gets the error.
func (c *Comm) reportError(err error) {
	if c.isValid() && c.id == 0 && c.opts.OnError != nil {
		c.opts.OnError(err)
	}
}

// begin gives the call its place in the sequence, and begins to track the call unless it may stay
// untracked.
func (c *Comm) begin(p *plan, blocking bool) (*operation, error) {
	if err := c.enter(p); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	o := c.register(blocking && p.call.Algorithm == SharedMemory && c.untracked == nil)
	o.describe(c, &p.call)
	o.peer, o.sends, o.needsBarrier, o.blocking = -1, p.send, p.needsBarrier, blocking
	if blocking && !c.seq.part {
		c.blocked++
	}
	// A Send or Recv has no place in the sequence, so its Seq holds the tag.
	o.env.Seq = uint32(max(p.tag, 0)) | pointBit
	if p.call.Kind != transport.KindPoint {
		o.env.Seq = c.seq.next()
		if blocking {
			c.seq.running = o
		}
	} else if p.err == nil {
		c.seq.beginPoint(o, p)
	}
	switch p.call.Algorithm {
	case SharedMemory:
		o.lock, o.ticket = c.lane.lock, c.lane.lock.nextTicket()
	case TwoLevel:
		o.lock, o.ticket = c.level.lock, c.level.lock.nextTicket()
	}
	return o, nil
}

// enter reports a call to Options.OnBegin and locks endpoint.mu, under which the caller gives the
// call its place in the sequence. If the call cannot begin, enter returns the error and does not
// lock. For ErrConcurrent enter revokes, because another rank may have begun the two concurrent
// calls in the opposite order, and would combine wrong vectors.
func (c *Comm) enter(p *plan) error {
	if !c.isValid() {
		return fmt.Errorf("%v: %w", p.call, errNil)
	}
	if c.opts.OnBegin != nil {
		c.opts.OnBegin()
	}
	c.mu.Lock()
	err := c.admit(p)
	if err == nil {
		c.goroutines = c.goroutines || c.blocked > 0 && !c.seq.part
		return nil
	}
	c.mu.Unlock()
	if errors.Is(err, ErrConcurrent) {
		c.revoke(err)
	}
	return err
}

// admit returns an error if a call cannot begin now: its communicator is closed or in a
// blocking call. The caller holds endpoint.mu.
func (c *Comm) admit(p *plan) error {
	if c.closed || c.seq.isClosed() {
		return fmt.Errorf("%v: %w: %w", p.call, ErrClosed, ErrRevoked)
	}
	if now := c.seq.running; now != nil && p.call.Kind != transport.KindPoint {
		return &callError{fmt.Errorf("%w: %v during %v: use one communicator per goroutine (Dup), or start both calls from one goroutine by functions such as IAllReduce",
			ErrConcurrent, p.call, now.env.Call)}
	}
	return nil
}

// describe fills in the fields that come from the communicator and the description of the
// call. The caller fills in the place in the sequence.
func (o *operation) describe(c *Comm, call *transport.Call) {
	o.Comm = c
	o.env.Comm, o.env.Call, o.env.Priority = c.id, *call, c.priority
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
			o.revoke(errPanicked)
		}
		o.end(err == nil && !panicked)
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
// sequence, and the watching of its context. Afterwards o may be reused.
func (o *operation) end(well bool) {
	if o.lock != nil {
		o.lock.release(well)
	}
	for _, words := range o.scratch {
		o.pools.put(words)
	}
	ep, disarm := o.endpoint, o.unwatch // after unregister o may be another call
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
	tracked := ep.unregister(o)
	ep.mu.Unlock()
	if disarm != nil {
		disarm()
	}
	if tracked {
		ep.working.Done()
	}
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
