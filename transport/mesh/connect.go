package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
)

// The numbers of the streams of a pair: the Kind of a stream is Data plus its number.
const (
	dataStream = iota
	urgentStream
	streamsPerPair
)

// maxDials is how many streams are opened at the same time.
const maxDials = 16

// attempt is a Connect in progress: it gathers the streams of one view as they come. After Connect has
// succeeded, the attempt stays for the pairs that were not planned (demand.go), until the view is over at
// this rank.
type attempt struct {
	ctx     context.Context // of the Connect; ended when it returns
	view    elastic.View
	hash    [32]byte
	self    int
	planned []bool        // by rank
	sparse  bool          // not all pairs of the view are planned
	over    chan struct{} // closed when all planned streams are there, or err is set
	demand  *demand

	mu      sync.Mutex
	streams []couple // of planned pairs, by rank
	asked   []*lane  // the lanes that are to be bound to the view
	missing int      // the number of planned streams that are not there
	ended   bool
	err     error
	lastErr []error // by rank: the last error of a dial, for messages to users

	dials sync.WaitGroup // added to before ended is set
	turns chan struct{}  // a token for each stream that is being opened
}

// link is one of the two lanes of a pair, with its properties in this view.
type link struct {
	*lane
	path  event.Path
	wants Path     // the Config.Path of the other side
	site  [32]byte // the Config.Site of the other side
}

// couple is the two lanes of a pair; a lane that is not there is zero.
type couple [streamsPerPair]link

// linkOver returns the link over a lane on which the other side has sent the hello g.
func linkOver(l *lane, g wire.Greeting) link {
	return link{lane: l, path: l.raw.Path(), wants: Path(g.Path), site: g.Site}
}

// end ends a link that no pair uses. The parameter how is the method that ends its stream.
func (l *link) end(how func(Stream) error) {
	_ = how(l.raw)
	close(l.pair)
}

// revokedTime is how long an attempt goes on after its view was revoked. Streams that are about to come
// are still accepted: if one failed, a peer that has entered the view already would blame this rank.
const revokedTime = time.Second

// listen reads the first frame of an urgent lane while other streams of the view are still missing.
// A peer that has all of its streams may have revoked the view already; the revocation ends the attempt.
func (l *lane) listen(a *attempt) urgentFrame {
	first := l.nextUrgent()
	if first.err == nil && first.Kind == wire.Revoke {
		timer := time.NewTimer(revokedTime)
		defer timer.Stop()
		select {
		case <-a.over:
		case <-timer.C:
		}
		a.revoke(transport.DecodeCause(a.view.Rank(l.peer), first.body))
	}
	return first
}

// Connect implements elastic.Network.
func (m *Mesh) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := m.connect(ctx, v, self)
	if err != nil {
		return nil, fmt.Errorf("mesh: connect rank %d of %v: %w", self, v, err)
	}
	return t, nil
}

// connect gathers two streams per planned pair, by dialling peers and by waiting for their dials, until
// all are there or one cannot be made. There is no barrier at the end: a member whose attempt fails
// resets its streams, and that revokes the view at the members that have begun it.
func (m *Mesh) connect(ctx context.Context, v elastic.View, self int) (*Transport, error) {
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != m.id {
		return nil, fmt.Errorf("%w: %s does not have this rank", collective.ErrArgument, m.id.Short())
	}
	if err := m.Introduce(v.Members); err != nil {
		return nil, err
	}
	viewer, _ := m.carrier.(Viewer)
	if viewer != nil {
		if err := viewer.Entering(v); err != nil {
			return nil, err
		}
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newAttempt(ctx, m, v, self, m.cfg.Plan(v, self))
	if err := m.enter(a); err != nil {
		return nil, err
	}
	m.probeMissing(a)
	m.dialAll(a)
	late := time.AfterFunc(bindTime, func() { m.dialLate(a) })
	defer late.Stop()
	select {
	case <-a.over:
	case <-ctx.Done():
		a.fail(a.blame(context.Cause(ctx)))
	case <-m.done:
		a.fail(errClosed())
	}
	cancel() // ends the dials
	for _, l := range a.asked {
		m.lanes.withdraw(a, l, true)
	}
	a.dials.Wait()
	m.leave(a)
	if a.err != nil {
		a.demand.abandon(a.err)
		return nil, a.err
	}
	m.links.meet(v)
	m.lanes.keep(v)
	if viewer != nil {
		viewer.Entered(v)
	}
	return m.start(outer, a)
}

// newAttempt returns the attempt of m to gather the planned streams of v. If there are none, the attempt
// has succeeded already. If planned is nil, the streams of all pairs are planned.
func newAttempt(ctx context.Context, m *Mesh, v elastic.View, self int, planned []bool) *attempt {
	n := len(v.Members)
	a := &attempt{ctx: ctx, view: v, hash: v.Hash(), self: self, planned: planned, over: make(chan struct{}),
		streams: make([]couple, n), lastErr: make([]error, n), turns: make(chan struct{}, maxDials)}
	a.demand, a.sparse = newDemand(m, a), planned != nil
	if !a.sparse {
		a.planned = slices.Repeat([]bool{true}, n)
		a.planned[self] = false
	}
	for _, p := range a.planned {
		if p {
			a.missing += streamsPerPair
		}
	}
	if a.missing == 0 {
		a.ended = true
		close(a.over)
	}
	return a
}

// enter makes the attempt known to the handlers of streams, and gives it the streams that have
// been waiting for it.
func (m *Mesh) enter(a *attempt) error {
	waiting, err := m.register(a)
	for _, p := range waiting {
		p.claimed <- a
	}
	return err
}

// register is the part of enter that needs the lock; it returns the parked streams of the view.
func (m *Mesh) register(a *attempt) ([]*parkedStream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, errClosed()
	case a.view.Epoch < m.floor:
		return nil, fmt.Errorf("epoch %d is over", a.view.Epoch)
	case m.attempts[a.hash] != nil:
		return nil, errors.New("already connecting")
	}
	m.attempts[a.hash] = a
	m.floor = a.view.Epoch
	var waiting []*parkedStream
	m.parked = slices.DeleteFunc(m.parked, func(p *parkedStream) bool {
		if p.lineage == a.hash {
			waiting = append(waiting, p)
			return true
		}
		return false
	})
	return waiting, nil
}

// leave notes that Connect is about to return. If it has succeeded, this end enters no other view of this
// epoch or of an earlier one.
func (m *Mesh) leave(a *attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.err == nil {
		m.floor = max(m.floor, a.view.Epoch+1)
		return
	}
	m.forgetLocked(a)
}

// bindTime is how long an attempt waits for lanes that are still in use in an earlier view, before it opens
// new lanes in their place.
const bindTime = 100 * time.Millisecond

// dialAll binds the planned lanes with all lower ranks to the view, and opens the lanes that are missing.
// Higher ranks do the same for their lanes with this rank.
func (m *Mesh) dialAll(a *attempt) {
	for back := range a.self {
		rank := a.self - 1 - back // the nearest first: otherwise all ranks would begin with rank 0
		if !a.planned[rank] {
			continue
		}
		a.dials.Go(func() {
			for number := range streamsPerPair {
				l, _, rests := m.lanes.ask(a, rank, number)
				switch {
				case l == nil:
					m.dialOne(a, rank, number)
				case !a.expect(l):
					m.lanes.withdraw(a, l, true)
				case rests:
					m.greet(a, l)
				}
			}
		})
	}
}

// expect notes that a lane is to be bound to the view. It returns false if the attempt is over.
func (a *attempt) expect(l *lane) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.asked = append(a.asked, l)
	return true
}

// dialLate opens streams in place of the lanes that are still in use after bindTime.
func (m *Mesh) dialLate(a *attempt) {
	a.mu.Lock()
	asked := slices.Clone(a.asked)
	a.mu.Unlock()
	for _, l := range asked {
		if m.lanes.withdraw(a, l, false) {
			m.dialOne(a, a.view.Rank(l.peer), l.number)
		}
	}
}

// dialOne opens a stream in a goroutine, unless the attempt is over.
func (m *Mesh) dialOne(a *attempt, rank, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.dials.Go(func() {
		select {
		case a.turns <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		defer func() { <-a.turns }()
		if err := m.dial(a.ctx, a, rank, number); err != nil && a.ctx.Err() == nil && m.life.Err() == nil {
			a.fail(a.blameFor(rank, err))
		}
	})
}

// dial opens one stream and exchanges hellos, again and again until it succeeds or
// must give up.
func (m *Mesh) dial(ctx context.Context, a *attempt, rank, number int) error {
	return m.retry(ctx, func() error {
		l, err := m.join(ctx, a, rank, number)
		if err != nil {
			a.note(rank, err)
			return err
		}
		if !m.begin() {
			_ = l.raw.Reset()
			return errClosed()
		}
		m.lanes.add(l.lane)
		a.put(rank, l)
		go func() {
			defer m.working.Done()
			m.serve(a, l.lane)
		}()
		return nil
	})
}

// join opens one stream and says hello. The answer comes when the other side has entered
// the view, too.
func (m *Mesh) join(ctx context.Context, a *attempt, rank, number int) (link, error) {
	s, err := m.carrier.Open(ctx, a.view.Members[rank].ID, Data+Kind(number))
	if err != nil {
		return link{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	l, err := m.shakeHands(ctx, s, a, rank, number)
	if !stop() && err == nil {
		_ = l.raw.Reset()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Reset()
		return link{}, err
	}
	return l, nil
}

// shakeHands exchanges hellos on s, and moves to a better path if there is one.
func (m *Mesh) shakeHands(ctx context.Context, s Stream, a *attempt, rank, number int) (link, error) {
	if err := sendHello(s, m.greeting(a)); err != nil {
		return link{}, err
	}
	answer, err := readHello(s)
	if err == nil {
		err = m.check(a, answer, rank)
	}
	if err != nil {
		return link{}, err
	}
	return upgrade(ctx, s, answer, number, true)
}

// upgrade returns the link over the best stream that both sides want, which may replace s. The other
// side has sent the hello g on s.
func upgrade(ctx context.Context, s Stream, g wire.Greeting, number int, opener bool) (link, error) {
	peer := s.Peer()
	if u, ok := s.(Upgrader); ok {
		var err error
		if s, err = u.Upgrade(ctx, opener); err != nil {
			return link{}, err
		}
	}
	return linkOver(newLane(s, peer, number), g), nil
}

// put adds a lane. A second lane of the same number replaces the first, as its opener has given up
// on that one. A lane that comes too late is reset.
func (a *attempt) put(rank int, l link) {
	if !a.planned[rank] {
		a.demand.put(rank, l)
		return
	}
	a.mu.Lock()
	old := a.streams[rank][l.number]
	late, last := a.ended, false
	if late {
		old = l
	} else {
		a.streams[rank][l.number] = l
		if old.lane == nil {
			a.missing--
		}
		last = a.missing == 0
		a.ended = last
	}
	a.mu.Unlock()
	if old.lane != nil {
		old.end(Stream.Reset)
	}
	if last {
		close(a.over)
	}
}

// fail ends the attempt with err, unless it has ended.
func (a *attempt) fail(err error) {
	a.finish(err, func() { a.end(Stream.Reset) })
}

// revoke ends the attempt because the view was revoked, and tells the others the cause: a peer that
// saw only the end of its streams would blame this rank. If the attempt has succeeded already, it
// revokes the transport instead.
func (a *attempt) revoke(cause error) {
	finished := a.finish(cause, func() {
		told := transport.EncodeCause(a.self, cause)
		for _, pair := range a.streams {
			if l := pair[urgentStream]; l.lane != nil {
				_ = l.writeWithin(urgentTime, wire.Header{Kind: wire.Revoke}, told)
			}
		}
		a.end(Stream.Close)
	})
	if !finished {
		a.demand.revoke(cause)
	}
}

// finish ends the attempt with err, and calls end, which ends its streams. It returns false, and does
// nothing, if the attempt has ended already.
func (a *attempt) finish(err error, end func()) bool {
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return false
	}
	a.ended, a.err = true, err
	a.mu.Unlock()
	end()
	close(a.over)
	return true
}

// end ends all streams of an attempt that is over; no stream is added any more. The parameter how is the
// method that ends a stream.
func (a *attempt) end(how func(Stream) error) {
	for _, pair := range a.streams {
		pair.end(how)
	}
}

// note remembers why a dial to a rank failed.
func (a *attempt) note(rank int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr[rank] = err
}

// blame returns the error of an attempt that ended because its ctx ended with cause. If a deadline has
// passed, the error is the loss of the first rank whose streams are missing. If the caller has cancelled
// the ctx, the error is cause.
func (a *attempt) blame(cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for rank, pair := range a.streams {
		if !a.planned[rank] || pair[dataStream].lane != nil && pair[urgentStream].lane != nil {
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

// blameFor returns the error of an attempt that failed because of err, which concerns rank. The
// rank counts as lost, unless it has left the view for a cause of its own or is in a later view already.
func (a *attempt) blameFor(rank int, err error) error {
	var over *overError
	if errors.As(err, &over) && len(over.cause) > 0 {
		return transport.DecodeCause(rank, over.cause)
	}
	if errors.Is(err, errStale) {
		return fmt.Errorf("%w: rank %d (%s): %w", transport.ErrRevoked, rank, a.view.Members[rank].ID.Short(), err)
	}
	return a.lost(rank, err)
}

// lost returns the error for the loss of a rank of the view.
func (a *attempt) lost(rank int, why error) error {
	return &transport.PeerError{Rank: rank, Peer: a.view.Members[rank].ID.Short(), Cause: why.Error()}
}
