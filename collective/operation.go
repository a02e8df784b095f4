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

// errPanicked is passed on to the other ranks when the goroutine of a call unwinds.
var errPanicked = errors.New("panic in a call")

// errNoContext is the error of calls without a context.
var errNoContext = fmt.Errorf("%w: the context is nil", ErrArgument)

// plan is a call that has not begun: its description, and what this rank does.
type plan struct {
	call transport.Call
	tag  uint32                 // of a KindPoint
	peer int                    // of a KindPoint, else -1
	send bool                   // a KindPoint that sends
	err  error                  // the arguments do not fit
	body func(*operation) error // sends and receives
	// closing is set for calls that can end at one rank before another has begun:
	// they finish with a round of empty messages through all ranks.
	closing bool
}

// operation is a call in progress at this rank.
type operation struct {
	*Comm
	env      transport.Envelope
	peer     int           // rank of the transport at the other end of a KindPoint, else -1
	closing  bool          // see plan
	blocking bool          // the caller waits in it: no other call can begin meanwhile
	begun    time.Duration // since world.started
	progress atomic.Int64  // when a message last went or came, since world.started
	waiting  atomic.Int32  // rank of the transport it receives from, plus 1; 0 for none
	sending  atomic.Int32  // the same of that it sends to
	brief    bool          // a call in shared memory, which takes less time than to keep books on it
	noticed  atomic.Bool   // the watch looks after it: only then are the times kept
	ctx      context.Context
	disarm   func() bool // ends what listens for the end of ctx, nil if nothing does
	guard    *guard      // listens for it instead, nil if none does
	turns    *turns      // that it takes, nil if it needs not
	ticket   uint32
	scratch  []*[]uint64 // pooled memory, given back at the end
	roll     *roll       // owned by the watch, nil until it looks first
}

// run carries out a blocking call.
func (c *Comm) run(ctx context.Context, p plan) error {
	return c.carryOut(ctx, &p, p.body)
}

// carryOut is run with a body that need not be allocated, as it would be in the plan: a
// short call takes less time than the garbage of one.
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

// tell passes the error of a call on to who wants to know of it, before the caller gets it.
func (c *Comm) tell(err error) {
	if c.made() && c.id == 0 && c.opts.OnError != nil {
		c.opts.OnError(err)
	}
}

// begin gives the call its place in the sequence and makes it known to the watch.
func (c *Comm) begin(p *plan, blocking bool) (*operation, error) {
	if err := c.announce(p); err != nil {
		return nil, err
	}
	o, err := c.tryBegin(p, blocking)
	return o, c.refused(err)
}

// announce tells Options.OnBegin of a call.
func (c *Comm) announce(p *plan) error {
	if !c.made() {
		return fmt.Errorf("%v: %w", p.call, errNil)
	}
	if c.opts.OnBegin != nil {
		c.opts.OnBegin()
	}
	return nil
}

// refused returns why a call was refused, and revokes if the other ranks may see it otherwise:
// of two concurrent calls one of them may have taken the other first.
func (c *Comm) refused(err error) error {
	if err != nil && errors.Is(err, ErrConcurrent) {
		c.revoke(err)
	}
	return err
}

// tryBegin is begin, but for what a refusal means to the other ranks.
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

// admit refuses a call that cannot begin now. The caller holds the lock.
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

// describe fills in what the communicator and the plan tell of a call, but for its place.
func (o *operation) describe(c *Comm, call *transport.Call) {
	o.Comm = c
	o.env.Comm, o.env.Call, o.env.Priority = c.id, *call, c.priority
}

// enrol makes a call and notes that it is in progress. The caller holds the lock.
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

// notice begins to keep books on a brief call, if one is in progress. The caller holds the
// lock.
func (w *world) notice() {
	if w.brief != nil {
		w.keep(w.brief)
		w.brief = nil
	}
}

// keep begins to keep books on a call, and lets Close wait for it. The caller holds the lock.
func (w *world) keep(o *operation) {
	w.working.Add(1)
	o.begun = time.Since(w.started)
	o.progress.Store(int64(o.begun))
	w.limit.Begin(o.begun)
	w.calls[o] = struct{}{}
	o.noticed.Store(true)
}

// strike notes that a call has ended, and reports whether Close waits for it. The caller
// holds the lock.
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

// carryOut runs the call to its end. An error of any kind revokes, as does a panic of
// a user's reduction: the other ranks wait for this one, and must not wait in vain.
// wrong says that the arguments do not fit.
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

// attempt carries out the call unless it is known to be in vain, and says of an error
// which call it ended.
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

// perform runs the body under ctx. The transport sees no context: the end of ctx
// revokes, once for the whole call, which spares every message the cost of
// watching it.
func (o *operation) perform(ctx context.Context, body func(*operation) error) error {
	o.ctx = ctx
	if !o.brief {
		o.arm()
	}
	if err := body(o); err != nil {
		return err
	}
	if o.size == 1 || !o.closing || o.turns != nil { // where all meet in any case
		return nil
	}
	return o.disseminate()
}

// arm lets the end of the call's context revoke. A brief call does so only when it is about
// to sleep: it costs as much as the call.
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

func (o *operation) end(well bool) {
	if o.turns != nil {
		o.turns.leave(well)
	}
	for _, words := range o.scratch {
		o.memory[sizeClass(len(*words))].Put(words)
	}
	w, disarm := o.world, o.disarm // o may be another call in a moment
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

// send sends buf to a rank of the communicator, in pieces of a segment: one message
// if it is empty. The receiver asks for the same pieces.
func (o *operation) send(to int, buf []byte) error {
	return o.inPieces(buf, func(piece []byte) error { return o.sendPiece(to, piece) })
}

// recv is the other side of send.
func (o *operation) recv(from int, buf []byte) error {
	return o.inPieces(buf, func(piece []byte) error { return o.recvPiece(from, piece) })
}

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

// moved notes that a message went or came.
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

// exchange sends out and receives in at the same time: a transport may hold a Send
// back until its receiver asks, so two ranks that both sent first would wait for
// ever. Several pieces are sent by another goroutine; to start one for a short message
// would take longer than the message does.
func (o *operation) exchange(to int, out []byte, from int, in []byte) error {
	if max(len(out), len(in)) <= o.pieces() {
		return o.exchangePiece(to, out, from, in)
	}
	sent := make(chan error, 1)
	go func() { sent <- o.send(to, out) }()
	err := o.recv(from, in)
	if err != nil {
		o.revoke(err) // or the send might wait for a rank that has given up
	}
	if serr := <-sent; err == nil {
		err = serr
	}
	return err
}

// swap exchanges v with a vector as long, piece by piece: done is told which bytes of v have
// gone when those that came for them are in room, which holds a piece, and may change them.
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
			o.revoke(err) // or the receive might wait for ever
		}
	}()
	return o.swapIn(partner, v, room, sent, done)
}

// swapIn is the receiving half of swap. It leaves no send behind that uses v.
func (o *operation) swapIn(partner int, v, room []byte, sent <-chan error, done func(first, end int)) (err error) {
	err = errPanicked // of done, which is the user's
	defer func() {
		if err != nil {
			o.revoke(err) // or a send might wait for ever
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

// exchangePiece is exchange of a message each.
func (o *operation) exchangePiece(to int, out []byte, from int, in []byte) error {
	peer := o.inWorld(from)
	o.waiting.Store(int32(peer + 1))
	received := o.t.Post(peer, o.env, in)
	err := o.sendPiece(to, out)
	if rerr := received.Wait(context.Background()); err == nil {
		err = rerr // a Send that fails revokes, which ends the receive
	}
	if err != nil {
		return err
	}
	o.waiting.Store(0)
	o.moved()
	return nil
}

// disseminate sends empty messages such that no rank returns before all have begun:
// ceil(lg n) steps (Hensgen, Finkel, Manber 1988).
func (o *operation) disseminate() error {
	for d := 1; d < o.size; d *= 2 {
		to, from := (o.rank+d)%o.size, (o.rank-d+o.size)%o.size
		if err := o.exchange(to, nil, from, nil); err != nil {
			return err
		}
	}
	return nil
}

// scratch returns n elements of unspecified value that live until the call ends.
func scratch[T Number](o *operation, n int) []T {
	return kernel.View[T](o.words(kernel.Words[T](n)), n)
}

// words returns pooled memory of at least n words that lives until the call ends.
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

// sizeClass returns the exponent of the least power of two that is not below n.
func sizeClass(n int) int { return bits.Len(uint(max(n, 1) - 1)) }
