package elastic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

const (
	// tickPeriod is the length of a tick, the unit of time of the membership machine.
	tickPeriod = 10 * time.Millisecond
	// beatTicks is the period of heartbeats to the members that watch this one, in ticks.
	beatTicks = 5
	// slowTicks is the period of heartbeats to suspects, in ticks.
	slowTicks = 25
	// A tick that is late by more than lateTick shows that this process was stopped or starved.
	lateTick = 100 * time.Millisecond
)

// keeper keeps one identity of this process in its group. It drives the membership machine, sends
// heartbeats, and judges which members live. One goroutine owns all fields above mu. It publishes
// its state as a standing; other goroutines pass it functions to call.
//
//	Network.Events --+
//	failures --------+--> machine --> Ready --> outboxes
//	ticks -----------+                  |
//	functions -------+                  +-----> standing, events, revocations
type keeper struct {
	cfg  *Config
	ep   Endpoint
	emit func(epoch uint64, body event.Body)
	out  *outboxes

	m          *member.Machine  // nil while a newcomer is not level
	view       View             // the machine's present view; epoch 0 has no members
	peers      map[ID]*peer     // records of the members about which something is known, see peerOf
	around     watching         // the members that this one watches
	approved   map[ID]approval  // newcomers that are admitted when their machine asks
	applicants map[ID]applicant // newcomers that have asked for admission
	calls      map[ID]bool      // newcomers with which this member tries to connect
	foreign    *foreign         // the pending admission of peers of another launcher, or nil
	sole       soleness         // whether one launcher has started all members
	health     health           // lateness of this process
	first      [32]byte         // hash of the first view until it is agreed; zero afterwards
	ticks      int              // since the start
	ticked     time.Time        // time of the last tick
	lacking    bool             // too few members can be reached
	returned   []ID             // suspects that were heard again while members are lacking
	regrouped  time.Time        // when their suspicions are withdrawn at the latest
	stalled    bool             // this member makes way because it holds up the others
	budget     budget           // of control messages of outsiders

	functions chan func()     // to be called by the keeper's goroutine
	ctx       context.Context // ends with stop
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the goroutine has ended

	calling sync.WaitGroup // the attempts of calls
	stable  atomic.Int64   // last step that all members have committed

	mu       sync.Mutex
	standing standing
	changed  chan struct{} // closed when the standing changes
	doing    beat          // Entered, Step, Leaving, Ended and Busy of this peer's heartbeat
	session  *Session      // the session in use, to be revoked when a view is lost
}

// standing is the state of a peer in its group, as its keeper publishes it.
type standing struct {
	phase  phase
	why    string   // the reason of a phase after inside
	view   View     // the latest view
	former []Member // some lost members, the latest first
	ended  bool     // members have left because the job is at its end
	short  *lack    // too few members can be reached; nil if there are enough
	wrong  error    // the first view cannot be agreed on
}

// phase is the stage of an identity's life. It only increases.
type phase uint8

const (
	outside phase = iota // wants to join
	inside               // is in the view
	left                 // left at its own request
	fenced               // was put out, and may join under a new identity
	kicked               // was put out for good
	closed               // the keeper has stopped
)

// lack is a number of reachable members that is too small.
type lack struct{ present, needed int }

// newKeeper starts the keeper of an identity: of a member of the first view, or, if first is nil,
// of a newcomer.
func newKeeper(cfg *Config, ep Endpoint, first []Member, emit func(uint64, event.Body)) (*keeper, error) {
	k := &keeper{cfg: cfg, ep: ep, emit: emit, out: newOutboxes(ep.Network),
		peers: make(map[ID]*peer), approved: make(map[ID]approval), applicants: make(map[ID]applicant), calls: make(map[ID]bool),
		functions: make(chan func()), changed: make(chan struct{}), ended: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if first != nil {
		if err := k.begin(first); err != nil {
			k.cancel()
			return nil, err
		}
		k.drain()
	}
	go k.run()
	return k, nil
}

// begin enters the first view. It runs before the keeper's goroutine starts.
func (k *keeper) begin(first []Member) error {
	self, err := toMember(k.ep.Self)
	if err == nil {
		cfg := member.Config{Self: self, Any: k.cfg.Any, Keys: k.ep.keys()}
		for _, g := range k.cfg.Grants {
			cfg.Grants = append(cfg.Grants, toGrant(g))
		}
		k.m, err = k.cfg.shared.newMachine(cfg, first)
	}
	if err != nil {
		return fmt.Errorf("first view: %w", err)
	}
	k.sole.on = k.cfg.Sole
	k.m.Step(member.Sole{On: k.sole.on})
	if len(first) > 1 {
		v := k.cfg.shared.view(k.m.View(), View{})
		k.first = v.Hash()
	}
	return nil
}

// ask starts the machine of a newcomer that is level, if it is not running yet, and tells the
// machine which contacts to ask for admission.
func (k *keeper) ask(contacts []ID) error {
	self, err := toMember(k.ep.self())
	if err != nil {
		return err
	}
	cfg := k.cfg.shared.config(member.Config{Self: self, Any: k.cfg.Any, Keys: k.ep.keys()})
	for _, id := range contacts {
		cfg.Contacts = append(cfg.Contacts, member.ID(id))
	}
	k.do(func() {
		if k.m == nil {
			k.m = member.NewJoiner(cfg)
			return
		}
		for _, id := range cfg.Contacts {
			k.m.Step(member.Met{Peer: id})
		}
	})
	return nil
}

// run is the keeper's goroutine. It ends with stop.
func (k *keeper) run() {
	defer close(k.ended)
	defer k.set(func(s *standing) { s.phase = closed })
	span := 1
	timer := time.NewTimer(tickPeriod)
	defer timer.Stop()
	k.ticked = time.Now()
	k.beatInTurn()
	events := k.ep.Network.Events()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil // the network is closed; stop follows
				continue
			}
			k.happened(e)
		case f := <-k.out.failures:
			k.notSent(f)
		case f := <-k.functions:
			f()
		case now := <-timer.C:
			k.tick(now, span)
			span = k.span()
			timer.Reset(time.Duration(span) * tickPeriod)
		case <-k.ctx.Done():
			return
		}
		k.drain()
		if span > 1 && k.span() == 1 {
			span = 1
			timer.Reset(tickPeriod)
		}
	}
}

// span returns the number of ticks that the next wake-up handles together. It is one while the
// machine has work. While the machine is idle, all ticks up to the next heartbeat pass at once, so
// that a hundred idle processes of a host use little of its processors.
func (k *keeper) span() int {
	if k.m == nil || k.entering() || !k.m.Idle() {
		return 1
	}
	period := beatTicks
	if k.crowded() && !slices.ContainsFunc(k.watched(), func(id ID) bool { return !k.peerOf(id).near || k.peerOf(id).suspected != "" }) {
		period = slowTicks
	}
	return period - k.ticks%period
}

// do passes f to the keeper's goroutine, which calls f. It returns when the call begins. If the
// keeper has ended, f is not called.
func (k *keeper) do(f func()) {
	select {
	case k.functions <- f:
	case <-k.ctx.Done():
	}
}

// tick handles a number of ticks: it detects lateness of this process, drives the machine, and
// sends heartbeats.
func (k *keeper) tick(now time.Time, span int) {
	// A late tick shows that this process did not run: the others' messages may be waiting.
	if late := now.Sub(k.ticked) - time.Duration(span)*tickPeriod; late > lateTick {
		k.health.worse(now)
		for _, p := range k.peers {
			p.excuse(late)
		}
	}
	k.ticked = now
	k.ticks += span
	if k.ticks%budgetTicks == 0 {
		clear(k.budget)
	}
	k.trustAll(now)
	if k.m != nil {
		k.m.Step(member.Stable{Steps: uint64(k.stable.Load())})
		for range span {
			k.m.Tick()
		}
	}
	if k.ticks%beatTicks == 0 {
		k.beatInTurn()
		k.judgeAll(now)
		k.foreign.again(k)
	}
}

// drain carries out the outputs of the machine.
func (k *keeper) drain() {
	if k.m == nil {
		return
	}
	r := k.m.Ready()
	for _, v := range r.Views {
		k.entered(v)
	}
	for _, n := range r.Notices {
		k.noticed(n)
	}
	// By now the method entered has introduced the members of a new view to the network.
	for _, m := range r.Messages {
		k.out.send(ID(m.To), memberLetter(m))
	}
}

// noticed handles a notice of the machine.
func (k *keeper) noticed(n member.Notice) {
	switch n.Kind {
	case member.Asked:
		k.asked(n.Request)
	case member.Decided:
		k.emit(k.view.Epoch, event.Decided{Why: k.shorten(n.Why, n.Before)})
	case member.QuorumLost:
		again := k.lacking
		k.lacking = true
		k.set(func(s *standing) { s.short = &lack{n.Present, n.Needed} })
		if again {
			return
		}
		k.emit(k.view.Epoch, event.Quorum{State: "lost", Present: n.Present, Needed: n.Needed})
		k.revoke(fmt.Errorf("too few members: %d of the %d that are needed", n.Present, n.Needed))
	case member.QuorumBack:
		k.lacking = false
		k.set(func(s *standing) { s.short = nil })
		k.emit(k.view.Epoch, event.Quorum{State: "back", Present: n.Present, Needed: n.Needed})
	case member.Left:
		k.over(left, n)
	case member.Fenced:
		k.over(fenced, n)
	case member.Kicked:
		k.over(kicked, n)
	}
}

// set changes the standing and wakes the goroutines that wait for a change. A closed keeper's
// standing stays as it is.
func (k *keeper) set(change func(*standing)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.standing.phase == closed {
		return
	}
	change(&k.standing)
	close(k.changed)
	k.changed = make(chan struct{})
}

// now returns the standing, and a channel that is closed when it changes.
func (k *keeper) now() (standing, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.standing, k.changed
}

// while returns a context that ends with ctx, or as soon as the function holds returns false. The
// caller must call the returned function, which waits for the goroutine behind the context.
func (k *keeper) while(ctx context.Context, holds func(standing) bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		for ctx.Err() == nil {
			s, changed := k.now()
			if !holds(s) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// stop ends the keeper and waits for its goroutines.
func (k *keeper) stop() {
	k.cancel()
	<-k.ended
	k.calling.Wait()
	k.out.stop() // last, as the keeper's goroutine starts outbox goroutines
}
