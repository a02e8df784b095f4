package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

// attempt is a call of Connect in progress: it gathers the streams of one view as they come. After
// Connect has succeeded, the attempt is kept until the view is over at this rank, because it makes
// the pairs that were not planned (lazypairs.go).
//
// Streams have three sources: the dials of this rank, the dials of higher ranks, and lanes of
// earlier views. Each stream is added by put. An attempt ends exactly once: by its last planned
// stream, by fail or by revoke. The goroutine that sets ended also closes done. Streams of planned
// pairs that come later are reset.
type attempt struct {
	// ctx bounds the dials. It ends when the attempt ends, or with the context of Connect.
	ctx    context.Context
	binder *binder // opens and binds the lanes
	view   elastic.View
	self   int
	// hello is the hello of this rank. Its lineage is the hash of the view.
	hello   wire.Greeting
	planned []bool // by rank: whether the pair must have its streams before Connect returns
	sparse  bool   // not all pairs of the view are planned
	// done is closed when all planned streams are there, or when err is set.
	done chan struct{}
	lazy *lazyPairs

	// mu guards the fields up to lastErr.
	mu sync.Mutex
	// streams has the streams of the planned pairs, by rank.
	streams   []lanePair
	requested []*lane // the lanes of earlier views that this rank wants to bind to the view
	late      bool    // bindTime is over: lanes that another view still uses are replaced at once
	// missing is the number of planned streams that are not there yet.
	missing int
	ended   bool
	err     error
	lastErr []error // by rank: the last error of a dial, for messages to users

	dials sync.WaitGroup // goroutines that bind or open lanes; dialOne adds none after ended is set
	// dialSlots bounds how many streams are opened at the same time: each has a token in it.
	dialSlots chan struct{}
}

// link is one of the two lanes of a pair, with its properties in this view.
type link struct {
	*lane
	path     event.Path
	wants    Path     // the Config.Path of the other side
	kernelID [32]byte // the Config.KernelID of the other side
}

// lanePair has the two lanes of a pair, by number. The link of a missing lane is zero.
type lanePair [streamsPerPair]link

// linkOver returns the link over a lane on which the other side has sent the hello g.
func linkOver(l *lane, g wire.Greeting) link {
	return link{lane: l, path: l.raw.Path(), wants: Path(g.Path), kernelID: g.KernelID}
}

// end ends a link that no pair uses, and its reader. The parameter how is the method that ends the
// stream.
func (l *link) end(how func(Stream) error) {
	_ = how(l.raw)
	close(l.pair)
}

// endWithCause tells the peer the cause and ends the lanes of a pair that has not begun at this
// end; it may have begun at the peer.
func (l *lanePair) endWithCause(last wire.Header, cause []byte) {
	if one := l[urgentStream]; one.lane != nil {
		if one.writeWithin(urgentTime, last, cause) == nil {
			_ = one.writeWithin(urgentTime, wire.Header{Kind: wire.End}, nil)
		}
		one.end(Stream.Close)
		l[urgentStream] = link{}
	}
	l.end(Stream.Reset)
}

// end ends the lanes that are there. The parameter how is the method that ends a stream.
func (l *lanePair) end(how func(Stream) error) {
	for _, one := range l {
		if one.lane != nil {
			one.end(how)
		}
	}
}

// newAttempt returns an attempt to gather the planned streams of v. If there are none, the attempt
// has succeeded already. If planned is nil, the streams of all pairs are planned.
func newAttempt(ctx context.Context, b *binder, v elastic.View, self int, planned []bool) *attempt {
	n := len(v.Members)
	a := &attempt{ctx: ctx, binder: b, view: v, self: self, planned: planned, done: make(chan struct{}),
		streams: make([]lanePair, n), lastErr: make([]error, n), dialSlots: make(chan struct{}, maxDials)}
	// The hash covers the members of the view, so two ranks with different members refuse each
	// other.
	a.hello = wire.Greeting{Epoch: v.Epoch, Lineage: v.Hash(), Rank: uint32(self), Job: b.cfg.Job,
		Path: uint8(b.cfg.Path), KernelID: b.cfg.KernelID}
	a.lazy, a.sparse = newLazyPairs(a), planned != nil
	if !a.sparse {
		a.planned = slices.Repeat([]bool{true}, n)
		a.planned[self] = false
	}
	for _, p := range a.planned {
		if p {
			a.missing += streamsPerPair
		}
	}
	// A view of one member has no streams.
	if a.missing == 0 {
		a.ended = true
		close(a.done)
	}
	return a
}

// check returns a final error unless g is the hello that the rank must send in this view. Each rank
// may send any known path and any kernel ID; the code that uses these two compares them.
func (a *attempt) check(g wire.Greeting, rank int) error {
	want := a.hello
	want.Rank, want.Path, want.KernelID = uint32(rank), g.Path, g.KernelID
	// A path number above the known ones is from a later version.
	if g != want || g.Path >= uint8(paths) {
		return final{fmt.Errorf("%w: the hello says job %q, epoch %d, rank %d", errRefused, g.Job, g.Epoch, g.Rank)}
	}
	return nil
}

// maxDials is how many streams an attempt opens at the same time.
const maxDials = 16

// bindTime is how long an attempt waits for lanes that are still in use in an earlier view, before
// it opens new lanes in their place.
const bindTime = 100 * time.Millisecond

// dialAll binds the planned lanes with all lower ranks to the view, and opens the lanes that are
// missing. Higher ranks do the same for their lanes with this rank.
func (a *attempt) dialAll() {
	for back := range a.self {
		rank := a.self - 1 - back // from the nearest rank down: otherwise all ranks would dial rank 0 first
		if !a.planned[rank] {
			continue
		}
		a.dials.Go(func() {
			for number := range streamsPerPair {
				l, _, idle := a.binder.lanes.requestBind(a, rank, number)
				switch {
				case l == nil:
					a.dialOne(rank, number)
				case !a.expect(l):
					a.binder.lanes.withdraw(a, l, true)
				case idle:
					l.sayHello(a.hello)
				case a.isLate():
					a.replace(l)
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
	a.requested = append(a.requested, l)
	return true
}

// dialLate opens streams in place of the lanes that are still in use after bindTime.
func (a *attempt) dialLate() {
	a.mu.Lock()
	a.late = true
	asked := slices.Clone(a.requested)
	a.mu.Unlock()
	for _, l := range asked {
		a.replace(l)
	}
}

// isLate reports whether bindTime is over.
func (a *attempt) isLate() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.late
}

// replace opens a stream in place of a lane that is still in use.
func (a *attempt) replace(l *lane) {
	if a.binder.lanes.withdraw(a, l, false) {
		a.dialOne(a.view.Rank(l.peer), l.number)
	}
}

// dialOne opens a stream in a goroutine, unless the attempt is over.
func (a *attempt) dialOne(rank, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.dials.Go(func() {
		select {
		case a.dialSlots <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		defer func() { <-a.dialSlots }()
		if err := a.binder.dial(a.ctx, a, rank, number); err != nil && a.ctx.Err() == nil && !a.binder.life.isOver() {
			a.fail(a.blameFor(rank, err))
		}
	})
}

// belongs reports whether the hello g is right for the member with the ID from. The carrier has
// proved that ID; the other fields of the hello are only claims of the peer.
func (a *attempt) belongs(g wire.Greeting, from elastic.ID) bool {
	rank := int(g.Rank)
	return rank != a.self && rank < len(a.view.Members) && a.view.Members[rank].ID == from &&
		a.check(g, rank) == nil
}

// sayHello says hello to a rank on a new stream, and returns the answer of that rank. The answer
// comes when that rank enters the view.
func (a *attempt) sayHello(s Stream, rank int) (wire.Greeting, error) {
	if err := sendHello(s, a.hello); err != nil {
		return wire.Greeting{}, err
	}
	answer, err := readHello(s)
	if err == nil {
		err = a.check(answer, rank)
	}
	return answer, err
}

// admit answers the hello g on the new stream s. It returns the link over the best stream that the
// paths of both sides allow. That stream may replace s.
func (a *attempt) admit(g wire.Greeting, number int, s Stream) (link, error) {
	ctx, cancel := context.WithTimeout(a.lazy.life, helloTime)
	defer cancel()
	err := setDeadline(s, time.Now().Add(helloTime))
	if err == nil {
		err = sendHello(s, a.hello)
	}
	var l link
	if err == nil {
		// The upgrade follows the hellos, because it depends on the paths that both sides accept.
		l, err = upgrade(ctx, s, g, number, false)
	}
	if err == nil {
		err = setDeadline(l.raw, time.Time{})
	}
	if err != nil && l.lane != nil {
		_ = l.raw.Reset()
	}
	return l, err
}

// rebind answers the hello g on an idle lane. It returns false if the lane must end. The lane
// counts for the view only after the answer was written, so no frame of the view can precede the
// answer.
func (a *attempt) rebind(l *lane, g wire.Greeting) bool {
	if !a.lazy.hold() {
		a.lazy.refuse(l.raw)
		return false
	}
	defer a.lazy.holds.Done()
	if int(g.Rank) < a.self {
		return false
	}
	// The write ends with the view and not with the ctx of Connect: a lane may be bound after
	// Connect has returned.
	stop := context.AfterFunc(a.lazy.life, func() { _ = l.raw.Reset() }) // the write may be stuck
	if err := l.writeHello(a.hello); !stop() || err != nil {
		return false
	}
	// Each view needs a new channel, because link.end closes the channel.
	l.pair = make(chan *pair, 1)
	a.put(int(g.Rank), linkOver(l, g))
	return true
}

// put adds a lane with a rank. A second lane of the same number replaces the first, because its
// opener has given up on the first. If the attempt has ended, put resets the lane.
func (a *attempt) put(rank int, l link) {
	if !a.planned[rank] {
		a.lazy.put(rank, l)
		return
	}
	a.mu.Lock()
	old := a.streams[rank][l.number]
	late, last := a.ended, false
	if late {
		old = l
	} else {
		a.streams[rank][l.number] = l
		// A replaced lane was counted before.
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
		close(a.done)
	}
}

// fail ends the attempt with err, unless the attempt has ended already. It resets all streams. The
// members that have begun the view see their streams end, and revoke the view.
func (a *attempt) fail(err error) {
	a.finish(err, func() { a.end(Stream.Reset) })
}

// revoke ends the attempt because the view was revoked, and sends the cause to the peers: a peer
// that saw only the end of its streams would blame this rank. If the attempt has succeeded already,
// revoke revokes the transport instead.
func (a *attempt) revoke(cause error) {
	finished := a.finish(cause, func() {
		body := transport.EncodeCause(a.self, cause)
		for _, pair := range a.streams {
			// Only an urgent stream carries a cause. A rank whose urgent stream is still missing
			// sees the end of its data stream, or gets a refusal later.
			if l := pair[urgentStream]; l.lane != nil {
				_ = l.writeWithin(urgentTime, wire.Header{Kind: wire.Revoke}, body)
			}
		}
		a.end(Stream.Close)
	})
	if !finished {
		a.lazy.revoke(cause)
	}
}

// finish ends the attempt with err, and calls end to end the streams. It returns false, and does
// nothing, if the attempt has ended already.
func (a *attempt) finish(err error, end func()) bool {
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return false
	}
	// put adds no stream once ended is set, so end finds all streams.
	a.ended, a.err = true, err
	a.mu.Unlock()
	end()
	close(a.done)
	return true
}

// end ends all streams of an attempt that is over; no stream is added any more. The parameter how
// is the method that ends a stream.
func (a *attempt) end(how func(Stream) error) {
	for _, pair := range a.streams {
		pair.end(how)
	}
}

// noteError remembers why a dial to a rank failed.
func (a *attempt) noteError(rank int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr[rank] = err
}

// blame returns the error of an attempt that ended because its ctx ended with cause. If a deadline
// has passed, the error is the loss of the first rank whose streams are missing. If the caller has
// cancelled the ctx, the error is cause.
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
// rank counts as lost, unless err says that the rank has left the view, or is in a later view.
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
