package mesh

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// Transport is the data plane of one view at one rank; it implements
// transport.Transport and transport.Meter. A message is at most wire.MaxData bytes long.
//
// A Transport works until its mailbox fails: readers fill the mailbox, and senders write. When the
// mailbox fails, by Revoke or by Close, pair.finish ends each pair.
type Transport struct {
	self int
	box  *mailbox.Box
	// pairs has the pair with each rank. The pointer is nil for this rank, and for each rank with
	// which there is no pair yet.
	pairs []atomic.Pointer[pair]
	// paths has, by rank, the paths of planned pairs and of pairs that share memory.
	paths     []event.Path
	names     []string   // short IDs, by rank
	lazy      *lazyPairs // makes the pairs that are not planned
	closedErr error      // the cause with which Close fails the box
	// epoch is the epoch of the view.
	epoch uint64
	// meshClosed is closed when the mesh closes. The streams of the mesh end then.
	meshClosed <-chan struct{}
	// lanes has the streams of the whole mesh, which outlive the view.
	lanes *lanes

	memoryTaken atomic.Bool // Shared has been called, so the caller releases the memory

	closing chan struct{} // closed by Close
	once    sync.Once
	working sync.WaitGroup // all goroutines except the readers, which belong to the lanes
}

// newTransport takes over the streams of an attempt that succeeded, and the shared memory of s
// if s is not nil.
func newTransport(a *attempt, s *shmGroup) *Transport {
	v, self, streams := a.view, a.self, a.streams
	t := &Transport{
		meshClosed: a.binder.life.ctx.Done(),
		lanes:      a.binder.lanes,
		epoch:      v.Epoch,
		self:       self,
		pairs:      make([]atomic.Pointer[pair], len(streams)),
		paths:      make([]event.Path, len(streams)),
		lazy:       a.lazy,
		closedErr:  fmt.Errorf("mesh: %w", transport.ErrClosed),
		closing:    make(chan struct{}),
	}
	// The mailbox revokes the view by t.Revoke if it finds that calls do not match.
	t.box = mailbox.New(self, len(streams), mailbox.DefaultLimit, t.Revoke)
	if s != nil {
		t.box.Share(s.shared(t.box.Cause))
	}
	for rank := range streams {
		t.paths[rank] = streams[rank][dataStream].path
		// Ranks of a sparse view may share memory without a stream between them.
		if s != nil && rank != self && slices.Contains(s.ranks, rank) {
			t.paths[rank].Kind, t.paths[rank].Why = "shm", s.copyReason(rank)
		}
	}
	for _, m := range v.Members {
		t.names = append(t.names, m.ID.Short())
	}
	if s != nil {
		s.watchDeaths(t.peerDied)
	}
	for rank, lanes := range streams {
		if lanes[dataStream].lane != nil {
			t.begin(rank, lanes, nil)
		}
	}
	// Lanes of other pairs that have come before this line wait in lazy. adopt begins their pairs.
	a.lazy.adopt(t)
	t.working.Go(a.lazy.serve)
	return t
}

// pairWith returns the pair with a rank. If there is none it waits until one is made. The caller
// revokes the view with the error.
func (t *Transport) pairWith(ctx context.Context, rank int) (*pair, error) {
	p, pending := t.lazy.need(rank)
	switch {
	case p != nil:
		return p, nil
	case pending == nil:
		// The view is over at this rank, so the box has failed.
		<-t.box.Failed()
		return nil, t.box.Cause()
	}
	select {
	case <-pending.done:
		if pending.err != nil {
			return nil, pending.err
		}
		return t.pairs[rank].Load(), nil
	case <-ctx.Done():
		return nil, mailbox.Cancelled(ctx, t.self, fmt.Sprintf("send to rank %d", rank))
	case <-t.box.Failed():
		return nil, t.box.Cause()
	case <-t.meshClosed:
		return nil, errClosed()
	}
}

// begin begins the pair with a rank over its lanes. If pending is not nil, the pair sends the
// signals and probes that wait in pending. The caller makes sure that t is not closed meanwhile.
func (t *Transport) begin(rank int, lanes lanePair, pending *pendingPair) {
	p := newPair(t, rank, t.names[rank], lanes)
	if pending != nil {
		p.signals, p.probes = pending.signals, pending.probes
	}
	t.pairs[rank].Store(p)
	// The reader of each lane waits for the pair on l.pair, which has room for one.
	for _, l := range lanes {
		l.pair <- p
	}
	t.working.Go(p.writeSignals)
	t.working.Go(p.finish)
}

// peerDied handles a report of the death watch: the process of a rank of this host is ending. The
// goroutine of the death watch calls it.
func (t *Transport) peerDied(rank int) {
	if p := t.pairs[rank].Load(); p != nil {
		p.peerDied()
		return
	}
	t.Revoke(&transport.PeerError{Rank: rank, Peer: t.names[rank], Cause: "process ended", Ended: true})
}

// Shared implements transport.Sharer. A caller of Shared must call Release of the result. If Shared
// is never called, Close releases the memory.
func (t *Transport) Shared() *transport.Shared {
	t.memoryTaken.Store(true)
	return t.box.Shared()
}

// Path implements elastic.Pather. The path is empty if there is no pair with the rank yet.
func (t *Transport) Path(rank int) event.Path {
	if p := t.pairs[rank].Load(); p != nil && t.paths[rank].Kind == "" {
		return p.path
	}
	return t.paths[rank]
}

// Send implements transport.Transport.
func (t *Transport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if err := t.box.Check("send", to); err != nil {
		return err
	}
	// An error of the argument does not revoke the view, unlike the errors below.
	if len(buf) > wire.MaxData {
		return fmt.Errorf("send: %d bytes, at most %d: %w", len(buf), wire.MaxData, collective.ErrArgument)
	}
	var err error
	p := t.pairs[to].Load()
	switch {
	case to == t.self:
		err = t.sendSelf(e, buf)
	case p == nil:
		p, err = t.pairWith(ctx, to)
	}
	if err == nil && p != nil {
		err = p.send(ctx, e, buf)
	}
	if err != nil {
		t.Revoke(err)
		return t.box.Cause()
	}
	return nil
}

// sendSelf sends a message to this rank, as a copy in its mailbox. It never waits: a mailbox has no
// limit for its own rank.
func (t *Transport) sendSelf(e transport.Envelope, buf []byte) error {
	m, err := t.box.Accept(t.self, e, len(buf))
	if err != nil {
		return err
	}
	copy(m.Buf, buf)
	m.Done()
	return nil
}

// Recv implements transport.Transport.
func (t *Transport) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return t.Post(from, e, buf).Wait(ctx)
}

// Post implements transport.Transport. If there is no pair with the rank from, Post starts to make
// it, although only that rank will send. That rank may be unable to make the pair, and without a
// pair this rank might not notice the death of that rank.
func (t *Transport) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	if t.box.Check("receive", from) == nil && from != t.self && t.pairs[from].Load() == nil {
		t.lazy.need(from)
	}
	return t.box.Post(from, e, buf)
}

// Peek implements transport.Transport. Like Post it starts to make the pairs with the ranks from:
// without them this rank might not notice that they have closed or died.
func (t *Transport) Peek(from []int, stop <-chan struct{}, matches func(from int, e transport.Envelope) bool) (int, transport.Envelope, error) {
	for _, rank := range from {
		if t.box.Check("peek", rank) == nil && rank != t.self && t.pairs[rank].Load() == nil {
			t.lazy.need(rank)
		}
	}
	return t.box.Peek(from, stop, matches)
}

// Arrived implements transport.Meter.
func (t *Transport) Arrived() []transport.Arrival {
	all := make([]transport.Arrival, len(t.pairs))
	for rank := range t.pairs {
		if p := t.pairs[rank].Load(); p != nil {
			all[rank] = p.gauge.Reset()
		}
	}
	return all
}

// Probe implements transport.Meter. In a large group it measures only pairs that have been made.
func (t *Transport) Probe(to, bytes int) {
	if t.box.Check("probe", to) != nil || to == t.self || t.box.Cause() != nil || bytes > transport.MaxProbe {
		return
	}
	if t.pairs[to].Load() == nil && len(t.pairs) > maxProbed {
		return
	}
	_, probes := t.sendQueues(to)
	// The queue has room for one probe. A further probe would measure the same link, so it is
	// dropped.
	select {
	case probes <- bytes:
	default:
	}
}

// maxProbed is the largest number of members with which a probe makes a missing pair. The search
// for the best order of ranks probes all links, which would make too many pairs in a larger group.
const maxProbed = 64

// Signal implements transport.Transport. A signal that is longer than MaxSignal is lost.
func (t *Transport) Signal(to int, msg []byte) {
	if t.box.Check("signal", to) != nil || t.box.Cause() != nil || len(msg) > transport.MaxSignal {
		return
	}
	if to == t.self {
		t.box.Signal(to, msg, false)
		return
	}
	signals, _ := t.sendQueues(to)
	// A full queue drops the signal: Signal never blocks, and signals may be lost.
	select {
	case signals <- append([]byte(nil), msg...):
	default:
	}
}

// sendQueues returns the queues of signals and probes for a rank. If there is no pair, it starts to
// make one. The queues are nil if the view is over.
func (t *Transport) sendQueues(rank int) (signals chan<- []byte, probes chan<- int) {
	p := t.pairs[rank].Load()
	var pending *pendingPair
	if p == nil {
		p, pending = t.lazy.need(rank)
	}
	switch {
	case p != nil:
		return p.signals, p.probes
	case pending != nil:
		return pending.signals, pending.probes
	}
	return nil, nil
}

// Signals implements transport.Transport.
func (t *Transport) Signals() <-chan transport.Signal { return t.box.Signals() }

// Awaits implements transport.Matcher.
func (t *Transport) Awaits(from int, e transport.Envelope) bool { return t.box.Awaits(from, e) }

// Full implements transport.Matcher.
func (t *Transport) Full(from int) bool { return t.box.Full(from) }

// Revoke implements transport.Transport. The goroutines of the pairs tell the peers.
func (t *Transport) Revoke(cause error) {
	if cause == nil {
		cause = transport.ErrRevoked
	}
	t.box.Fail(cause)
}

// Close implements transport.Transport. It waits until each peer has answered or has ended its
// streams, but at most a few seconds.
func (t *Transport) Close() error {
	t.once.Do(func() {
		t.box.Fail(t.closedErr)
		close(t.closing)
	})
	t.working.Wait()
	t.lazy.retire()
	if s := t.box.Shared(); s != nil && !t.memoryTaken.Load() {
		return s.Release()
	}
	return nil
}
