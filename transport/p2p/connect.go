package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
)

// The streams of a pair, by their number in the hello.
const (
	dataStream = iota
	urgentStream
	streamsPerPair
)

// maxDials is how many streams are opened at the same time.
const maxDials = 16

// attempt is a Connect in progress: the streams of one view as they come.
type attempt struct {
	ctx  context.Context // of the Connect; ended when it returns
	view elastic.View
	hash [32]byte
	self int
	over chan struct{} // closed when all streams are there, or err is set

	mu      sync.Mutex
	streams [][streamsPerPair]link // by rank
	missing int
	ended   bool
	err     error
	lastErr []error // by rank, of dials so far, for people
}

// Connect implements elastic.Network.
func (h *Host) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := h.connect(ctx, v, self)
	if err != nil {
		return nil, fmt.Errorf("p2p: connect rank %d of %v: %w", self, v, err)
	}
	return t, nil
}

// connect gathers two streams per pair, by dialling and by waiting for dials, until all
// are there or one cannot be had. There is no barrier at the end: a member that fails
// resets its streams, which revokes those that have begun.
func (h *Host) connect(ctx context.Context, v elastic.View, self int) (*Transport, error) {
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != h.id {
		return nil, fmt.Errorf("%w: %s is not that rank", collective.ErrArgument, h.id.Short())
	}
	if err := h.Introduce(v.Members); err != nil {
		return nil, err
	}
	if err := h.checkForgotten(v); err != nil {
		return nil, err
	}
	h.throttle.enter(h.insiders(v))
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newAttempt(ctx, v, self)
	if err := h.enter(a); err != nil {
		return nil, err
	}
	h.probeMissing(a)
	h.straighten(v)
	var dials sync.WaitGroup
	h.dialAll(ctx, a, &dials)
	select {
	case <-a.over:
	case <-ctx.Done():
		a.fail(a.blame(context.Cause(ctx)))
	case <-h.done:
		a.fail(fmt.Errorf("%w: host closed", transport.ErrClosed))
	}
	cancel() // ends the dials
	dials.Wait()
	h.leave(a)
	if a.err != nil {
		return nil, a.err
	}
	h.throttle.enter(h.insiders(v)) // with the relays that have been found meanwhile
	h.meetAll(v)
	return h.start(outer, a)
}

// newAttempt returns the attempt to gather the streams of v, which is over at once for a
// view of one.
func newAttempt(ctx context.Context, v elastic.View, self int) *attempt {
	n := len(v.Members)
	a := &attempt{ctx: ctx, view: v, hash: v.Hash(), self: self, over: make(chan struct{}),
		streams: make([][streamsPerPair]link, n), missing: (n - 1) * streamsPerPair, lastErr: make([]error, n)}
	if n == 1 {
		a.ended = true
		close(a.over)
	}
	return a
}

// enter makes the attempt known to the handlers of streams, and gives it those that
// came before.
func (h *Host) enter(a *attempt) error {
	waiting, err := h.register(a)
	for _, p := range waiting {
		p.claimed <- a
	}
	return err
}

// register is the part of enter that needs the lock; it returns the streams to be told.
func (h *Host) register(a *attempt) ([]*parkedStream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, fmt.Errorf("%w: host closed", transport.ErrClosed)
	case a.view.Epoch < h.floor:
		return nil, fmt.Errorf("epoch %d is over", a.view.Epoch)
	case h.attempts[a.hash] != nil:
		return nil, errors.New("already connecting")
	}
	h.attempts[a.hash] = a
	h.floor = a.view.Epoch
	var waiting []*parkedStream
	h.parked = slices.DeleteFunc(h.parked, func(p *parkedStream) bool {
		if p.lineage == a.hash {
			waiting = append(waiting, p)
			return true
		}
		return false
	})
	return waiting, nil
}

// leave undoes enter. After a success streams of this epoch and older are refused.
func (h *Host) leave(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.attempts, a.hash)
	if a.err == nil {
		h.floor = max(h.floor, a.view.Epoch+1)
	}
}

// dialAll opens the streams to all lower ranks, in goroutines counted by dials. Higher
// ranks open theirs to this one.
func (h *Host) dialAll(ctx context.Context, a *attempt, dials *sync.WaitGroup) {
	turns := make(chan struct{}, maxDials)
	for back := range a.self {
		rank := a.self - 1 - back // the nearest first: else all would begin with rank 0
		for number := range streamsPerPair {
			dials.Go(func() {
				select {
				case turns <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-turns }()
				if err := h.dial(ctx, a, rank, number); err != nil && ctx.Err() == nil {
					a.fail(a.blameFor(rank, err))
				}
			})
		}
	}
}

// dial opens one stream and exchanges hellos, again and again until it succeeds or
// must give up.
func (h *Host) dial(ctx context.Context, a *attempt, rank, number int) error {
	id, err := idOf(string(a.view.Members[rank].ID))
	if err != nil {
		return err
	}
	return h.retry(ctx, id, func(ctx context.Context) error {
		s, err := h.join(ctx, id, a, rank, number)
		if err != nil {
			a.note(rank, err)
			return err
		}
		a.put(rank, number, s)
		return nil
	})
}

// join opens one stream and says hello. The answer comes when the other side has entered
// the view, too; it is the first that comes back, the protocol being known to both.
func (h *Host) join(ctx context.Context, id peer.ID, a *attempt, rank, number int) (link, error) {
	s, err := h.open(ctx, id, dataProtocol)
	if err != nil {
		return link{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	l, err := h.shakeHands(ctx, s, a, rank, number)
	if !stop() && err == nil {
		_ = l.Reset()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Reset()
		return link{}, refusal(err)
	}
	return l, nil
}

// shakeHands exchanges hellos, and for the data stream offers of better ways.
func (h *Host) shakeHands(ctx context.Context, s *lazyStream, a *attempt, rank, number int) (link, error) {
	b, err := appendHello(nil, h.greeting(a, number))
	if number == dataStream {
		b = appendOffer(b, h.offer(direct.Ticket{}))
	}
	if err == nil {
		_, err = s.Write(b)
	}
	var answer wire.Greeting
	if err == nil {
		answer, err = readHello(s)
	}
	if err == nil {
		err = h.check(a, answer, rank, number)
	}
	if err != nil {
		return link{}, err
	}
	if number != dataStream {
		return streamLink(s.Stream), nil
	}
	theirs, err := readOffer(s)
	if err != nil {
		return link{}, err
	}
	return h.better(ctx, s.Stream, theirs)
}

// greeting returns the hello of this rank.
func (h *Host) greeting(a *attempt, number int) wire.Greeting {
	return wire.Greeting{Epoch: a.view.Epoch, Lineage: a.hash, Rank: uint32(a.self), Stream: uint8(number), Job: h.job}
}

// check compares a hello with what rank should say on the stream of that number.
func (h *Host) check(a *attempt, g wire.Greeting, rank, number int) error {
	want := h.greeting(a, number)
	want.Rank = uint32(rank)
	if g != want {
		return final{fmt.Errorf("%w: said job %q, epoch %d, rank %d", errRefused, g.Job, g.Epoch, g.Rank)}
	}
	return nil
}

// put adds a stream. One that comes again replaces the first, of which its opener has
// despaired; one that comes too late is reset.
func (a *attempt) put(rank, number int, l link) {
	a.mu.Lock()
	old := a.streams[rank][number]
	late, last := a.ended, false
	if late {
		old = l
	} else {
		a.streams[rank][number] = l
		if old.line == nil {
			a.missing--
		}
		last = a.missing == 0
		a.ended = last
	}
	a.mu.Unlock()
	if old.line != nil {
		_ = old.Reset()
	}
	if last {
		close(a.over)
	}
}

// fail ends the attempt with err, unless it has ended.
func (a *attempt) fail(err error) {
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	a.ended, a.err = true, err
	a.mu.Unlock()
	a.end(line.Reset)
	close(a.over)
}

// end ends all lines of an attempt that is over: nobody adds to them any more.
func (a *attempt) end(how func(line) error) {
	for _, pair := range a.streams {
		for _, l := range pair {
			if l.line != nil {
				_ = how(l.line)
			}
		}
	}
}

// note remembers why a dial failed.
func (a *attempt) note(rank int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr[rank] = err
}

// blame returns the loss of the first member that is missing, because of cause, which
// is the end of a ctx; if the caller gave up of its own will it returns just that.
func (a *attempt) blame(cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for rank, pair := range a.streams {
		if rank == a.self || pair[dataStream].line != nil && pair[urgentStream].line != nil {
			continue
		}
		why := errors.New("did not connect in time")
		if a.lastErr[rank] != nil {
			why = fmt.Errorf("not reached in time: %w", a.lastErr[rank])
		}
		return fmt.Errorf("%w: %w", a.lost(rank, why), cause)
	}
	return cause
}

// blameFor returns why the attempt failed because of err, which concerns rank. A member
// that is in a later view already is not at fault.
func (a *attempt) blameFor(rank int, err error) error {
	if errors.Is(err, errStale) {
		return fmt.Errorf("%w: rank %d (%s): %w", transport.ErrRevoked, rank, a.view.Members[rank].ID.Short(), err)
	}
	return a.lost(rank, err)
}

// lost returns the loss of a rank of the view.
func (a *attempt) lost(rank int, why error) error {
	return &transport.PeerError{Rank: rank, Peer: a.view.Members[rank].ID.Short(), Cause: why.Error()}
}
