package collective

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
)

// errPanicked is the cause of the revocation when the goroutine of a call panics or exits.
var errPanicked = errors.New("panic in a call")

// errNoContext is the error of calls with a nil context.
var errNoContext = fmt.Errorf("%w: the context is nil", ErrArgument)

// plan is a call that has not begun: its description, and the work of this rank.
type plan struct {
	call transport.Call
	tag  uint32                 // of a KindPoint
	peer int                    // rank of the communicator, of a KindPoint, else -1
	send bool                   // the KindPoint sends
	err  error                  // the first argument that does not fit; it fails the call and revokes
	body func(*operation) error // sends, receives and reduces
	// closing is set for calls that can end at one rank before another rank has begun them.
	// They end with a round of empty messages through all ranks (see disseminate).
	closing bool
}

// operation is a call in progress at this rank. One goroutine carries it out; the watch
// reads the atomic fields. A call is tracked or brief (untracked). Tracking means that the
// watch sees the call and that Close waits for it.
type operation struct {
	*Comm
	env      transport.Envelope // of its messages
	peer     int                // rank of the transport at the other end of a KindPoint, else -1
	closing  bool               // see plan
	blocking bool               // the caller waits for the end of the call, so no other collective call can begin
	begun    time.Duration      // since world.started
	progress atomic.Int64       // time of the last message in either direction, as a duration since world.started
	waiting  atomic.Int32       // rank of the transport from which it receives, plus 1; 0 for none
	sending  atomic.Int32       // rank of the transport to which it sends, plus 1; 0 for none
	brief    bool               // it began untracked: a call in shared memory can take less time than its tracking
	noticed  atomic.Bool        // tracked: only then are the times kept
	ctx      context.Context    // of the caller; nil before perform
	disarm   func() bool        // stops watching the end of ctx, nil if it is not watched
	guard    *guard             // watches the end of ctx instead, nil for none
	turns    *turns             // ticket lock that it takes, nil for none
	ticket   uint32             // in turns
	scratch  []*[]uint64        // pooled memory, returned at the end
	roll     *roll              // owned by the watch, nil until the watch sees the call
}

// run carries out a blocking call.
func (c *Comm) run(ctx context.Context, p plan) error {
	return c.carryOut(ctx, &p, p.body)
}

// carryOut is run with the body as a parameter. A body in the plan would be allocated, and
// its garbage costs more time than a short call.
func (c *Comm) carryOut(ctx context.Context, p *plan, body func(*operation) error) error {
	o, err := c.begin(p, true)
	if err == nil {
		err = o.carryOut(ctx, p.err, body)
	}
	if err != nil {
		c.tell(err)
	}
	return err
}

// tell reports the error of a call to Options.OnError, before the caller gets the error.
func (c *Comm) tell(err error) {
	if c.made() && c.id == 0 && c.opts.OnError != nil {
		c.opts.OnError(err)
	}
}

// begin gives the call its place in the sequence and tracks it unless it is brief.
func (c *Comm) begin(p *plan, blocking bool) (*operation, error) {
	if err := c.announce(p); err != nil {
		return nil, err
	}
	o, err := c.tryBegin(p, blocking)
	return o, c.refused(err)
}

// announce reports a call to Options.OnBegin.
func (c *Comm) announce(p *plan) error {
	if !c.made() {
		return fmt.Errorf("%v: %w", p.call, errNil)
	}
	if c.opts.OnBegin != nil {
		c.opts.OnBegin()
	}
	return nil
}

// refused returns the error of a refused call. It revokes for ErrConcurrent: another rank
// may have begun the other one of the two concurrent calls first.
func (c *Comm) refused(err error) error {
	if err != nil && errors.Is(err, ErrConcurrent) {
		c.revoke(err)
	}
	return err
}

// tryBegin is begin without the revocation for a refused call.
func (c *Comm) tryBegin(p *plan, blocking bool) (*operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(p); err != nil {
		return nil, err
	}
	o := c.enrol(blocking && p.call.Algorithm == SharedMemory && c.brief == nil)
	o.describe(c, &p.call)
	o.peer, o.closing, o.blocking = -1, p.closing, blocking
	o.env.Seq = p.tag | pointBit
	if p.call.Kind != transport.KindPoint {
		o.env.Seq = c.seq.next()
		if blocking {
			c.seq.running = o
		}
	} else if p.err == nil {
		o.peer = c.inWorld(p.peer)
		c.seq.queueUp(o, line{o.peer, p.tag, p.send})
	}
	switch p.call.Algorithm {
	case SharedMemory:
		o.turns, o.ticket = c.lane.turns, c.lane.turns.draw()
	case TwoLevel:
		o.turns, o.ticket = c.level.turns, c.level.turns.draw()
	}
	return o, nil
}

// admit returns an error if a call cannot begin now: its communicator is closed or in a
// blocking call. The caller holds world.mu.
func (c *Comm) admit(p *plan) error {
	if c.closed || c.seq.over() {
		return fmt.Errorf("%v: %w: %w", p.call, ErrClosed, ErrRevoked)
	}
	if now := c.seq.running; now != nil && p.call.Kind != transport.KindPoint {
		return &callError{fmt.Errorf("%w: %v during %v: Dup one for each goroutine, or use the I forms",
			ErrConcurrent, p.call, now.env.Call)}
	}
	return nil
}

// describe fills in the fields that come from the communicator and the description of the
// call. The place in the sequence is the caller's.
func (o *operation) describe(c *Comm, call *transport.Call) {
	o.Comm = c
	o.env.Comm, o.env.Call, o.env.Priority = c.id, *call, c.priority
}

// enrol returns a new operation, tracked unless it is brief. The caller holds world.mu.
func (w *world) enrol(brief bool) *operation {
	if !brief {
		o := new(operation)
		w.keep(o)
		return o
	}
	o := w.spare
	if o == nil {
		o = new(operation)
	}
	o.brief = true
	w.spare, w.brief, w.briefly = nil, o, true
	return o
}

// notice begins to track the brief call in progress, if there is one. The caller holds
// world.mu.
func (w *world) notice() {
	if w.brief != nil {
		w.keep(w.brief)
		w.brief = nil
	}
}

// keep begins to track a call: it records its times, and Close waits for it. The caller
// holds world.mu.
func (w *world) keep(o *operation) {
	w.working.Add(1)
	o.begun = time.Since(w.started)
	o.progress.Store(int64(o.begun))
	w.limit.Begin(o.begun)
	w.calls[o] = struct{}{}
	o.noticed.Store(true)
}

// strike removes a call that has ended, and reports whether it was tracked; then the caller
// must call working.Done. The caller holds world.mu.
func (w *world) strike(o *operation) bool {
	if w.brief == o {
		*o = operation{}
		w.brief, w.spare = nil, o
		return false
	}
	w.limit.End(time.Since(w.started))
	delete(w.calls, o)
	return true
}

// carryOut runs the call to its end. Every error revokes, and so does a panic of a user's
// reduction: the other ranks wait for this rank, and must not wait in vain. wrong is
// plan.err.
func (o *operation) carryOut(ctx context.Context, wrong error, body func(*operation) error) error {
	panicked := true
	var err error
	defer func() {
		if panicked {
			o.revoke(errPanicked)
		}
		o.end(err == nil && !panicked)
	}()
	err = o.attempt(ctx, wrong, body)
	panicked = false
	if err != nil {
		o.revoke(err)
	}
	return err
}

// attempt carries out the call unless its arguments or its context make it fail at once. It
// wraps an error with the description of the call.
func (o *operation) attempt(ctx context.Context, wrong error, body func(*operation) error) error {
	err := wrong
	switch {
	case ctx == nil:
		ctx, err = context.Background(), errNoContext
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = o.perform(ctx, body)
	}
	if err == nil {
		return nil
	}
	if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return &callError{fmt.Errorf("%v (call %d): %w", o.env.Call, o.env.Seq&^pointBit, err)}
}

// perform runs the body under ctx. The transport gets no context: the end of ctx revokes,
// once for the whole call, so that no message needs to watch it.
func (o *operation) perform(ctx context.Context, body func(*operation) error) error {
	o.ctx = ctx
	if !o.brief {
		o.arm()
	}
	if err := body(o); err != nil {
		return err
	}
	if o.size == 1 || !o.closing || o.turns != nil { // with turns all ranks meet in the body
		return nil
	}
	return o.disseminate()
}

// arm begins to watch the end of the call's context, which then revokes. A brief call is
// armed only when it is about to sleep, as arming costs as much time as the call.
func (o *operation) arm() {
	if o.disarm == nil && o.guard == nil && o.ctx != nil && o.ctx.Done() != nil {
		w, ctx := o.world, o.ctx
		o.disarm = context.AfterFunc(ctx, func() { w.revoke(context.Cause(ctx)) })
	}
}

// pass lets the next call have its turn before this one ends.
func (o *operation) pass(well bool) {
	o.turns.leave(well)
	o.turns = nil
}

// end gives back everything that the call holds: its turn, its pooled memory, its place in
// the sequence, and the watch of its context. Afterwards o may be reused.
func (o *operation) end(well bool) {
	if o.turns != nil {
		o.turns.leave(well)
	}
	for _, words := range o.scratch {
		o.memory[sizeClass(len(*words))].Put(words)
	}
	w, disarm := o.world, o.disarm // after strike o may be another call
	w.mu.Lock()
	if o.seq.running == o {
		o.seq.running = nil
	}
	o.seq.stepOut(o)
	if o.guard != nil {
		disarm = o.guard.release()
	}
	kept := w.strike(o)
	w.mu.Unlock()
	if disarm != nil {
		disarm()
	}
	if kept {
		w.working.Done()
	}
}

// send sends buf to a rank of the communicator, in segments; an empty buf is one message.
// The receiver asks for the same segments.
func (o *operation) send(to int, buf []byte) error {
	return o.inPieces(buf, func(piece []byte) error { return o.sendPiece(to, piece) })
}

// recv is the receiving half of send.
func (o *operation) recv(from int, buf []byte) error {
	return o.inPieces(buf, func(piece []byte) error { return o.recvPiece(from, piece) })
}

// inPieces calls do with each segment of buf in turn, at least once.
func (o *operation) inPieces(buf []byte, do func([]byte) error) error {
	for {
		n := min(len(buf), o.pieces())
		if err := do(buf[:n:n]); err != nil {
			return err
		}
		if buf = buf[n:]; len(buf) == 0 {
			return nil
		}
	}
}

// sendPiece sends one message. It makes the receiver known to the watch while it waits.
func (o *operation) sendPiece(to int, buf []byte) error {
	peer := o.inWorld(to)
	o.sending.Store(int32(peer + 1))
	if err := o.t.Send(context.Background(), peer, o.env, buf); err != nil {
		return err
	}
	o.sending.Store(0)
	o.moved()
	return nil
}

// recvPiece receives one message. It makes the sender known to the watch while it waits.
func (o *operation) recvPiece(from int, buf []byte) error {
	peer := o.inWorld(from)
	o.waiting.Store(int32(peer + 1))
	if err := o.t.Recv(context.Background(), peer, o.env, buf); err != nil {
		return err
	}
	o.waiting.Store(0)
	o.moved()
	return nil
}

// moved records that a message went or came. A wait that was long enough is added to the
// adaptive timeout.
func (o *operation) moved() {
	if !o.noticed.Load() {
		return
	}
	now := time.Since(o.started)
	wait := now - time.Duration(o.progress.Swap(int64(now)))
	if wait < stall.Worth {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit.Waited(wait, now)
}

// exchange sends out and receives in at the same time. A transport may block a Send until
// the receiver asks for the message, so two ranks that both send first would deadlock.
// Several segments are sent by a second goroutine; for a single short message its start
// would take longer than the message.
func (o *operation) exchange(to int, out []byte, from int, in []byte) error {
	if max(len(out), len(in)) <= o.pieces() {
		return o.exchangePiece(to, out, from, in)
	}
	sent := make(chan error, 1)
	go func() { sent <- o.send(to, out) }()
	err := o.recv(from, in)
	if err != nil {
		o.revoke(err) // otherwise the send might wait for a rank that has given up
	}
	if serr := <-sent; err == nil {
		err = serr
	}
	return err
}

// swap exchanges v with a vector of equal length at partner, segment by segment. room
// receives one segment. done is called with the range of bytes of v that were sent and
// whose counterparts are in room; it may change these bytes of v.
func (o *operation) swap(partner int, v, room []byte, done func(first, end int)) error {
	if len(v) <= o.pieces() {
		if err := o.exchangePiece(partner, v, partner, room); err != nil {
			return err
		}
		done(0, len(v))
		return nil
	}
	sent := make(chan error, len(v)/o.pieces()+1)
	go func() {
		defer close(sent)
		err := o.inPieces(v, func(piece []byte) error {
			err := o.sendPiece(partner, piece)
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
	for first := 0; first < len(v); first += o.pieces() {
		end := min(first+o.pieces(), len(v))
		if err := o.recvPiece(partner, room[:end-first]); err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
		done(first, end)
	}
	return nil
}

// exchangePiece is exchange with one message in each direction. It needs no goroutine: the
// receive is posted before the send.
func (o *operation) exchangePiece(to int, out []byte, from int, in []byte) error {
	peer := o.inWorld(from)
	o.waiting.Store(int32(peer + 1))
	received := o.t.Post(peer, o.env, in)
	err := o.sendPiece(to, out)
	if rerr := received.Wait(context.Background()); err == nil {
		err = rerr // a failed Send revokes, so the receive ends as well
	}
	if err != nil {
		return err
	}
	o.waiting.Store(0)
	o.moved()
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
	class := sizeClass(n)
	w, _ := o.memory[class].Get().(*[]uint64)
	if w == nil {
		memory := make([]uint64, 1<<class)
		w = &memory
	}
	o.scratch = append(o.scratch, w)
	return *w
}

// sizeClass returns the exponent of the smallest power of two that is at least n.
func sizeClass(n int) int { return bits.Len(uint(max(n, 1) - 1)) }
