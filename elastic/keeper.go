package elastic

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

const (
	// tickPeriod is the unit of time of the membership machine.
	tickPeriod = 10 * time.Millisecond
	// beatTicks is after how many ticks a member says to its watchers that it lives.
	beatTicks = 5
	// slowTicks is after how many a suspect is tried again.
	slowTicks = 25
	// lateTick is how late a tick must be for this process to have been stopped or starved.
	lateTick = 100 * time.Millisecond
)

// keeper keeps one identity of this process in its group: it drives the membership
// machine, tells others that this peer lives and judges who of them does. One
// goroutine owns all that stands above mu. What others need to know of it is its
// standing; what they want of it are functions that it calls.
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

	m         *member.Machine // nil while a joiner is not level
	view      View            // the machine's present one; that of epoch 0 has no members
	peers     map[ID]*peer    // of members of which something is known, see peerOf
	around    watching        // whom this member watches
	approved  map[ID]approval // peers that may join when they ask
	foreign   *foreign        // letting in a peer of another launcher, or nil
	sole      soleness
	health    health
	first     [32]byte // hash of the first view until it is agreed; zero afterwards
	ticks     int
	ticked    time.Time // last tick
	lacking   bool      // too few members can be reached
	returned  []ID      // members that are heard again while that is so
	regrouped time.Time // when their suspicions are taken back at the latest
	stalled   bool      // this member makes way because it holds up the others
	budget    budget    // of letters of outsiders

	functions chan func()
	ctx       context.Context // ends with stop
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the goroutine has ended

	stable atomic.Int64 // steps that all have committed

	mu       sync.Mutex
	standing standing
	changed  chan struct{} // closed when the standing changes
	doing    beat          // Entered, Step, Leaving and Busy of this peer
	session  *Session      // the one that a lost view has to revoke
}

// standing is how a peer stands in its group.
type standing struct {
	phase  phase
	why    string   // of phases out of the group
	view   View     // the latest
	former []Member // some that were lost on the way, the latest first
	ended  bool     // members have left because the job is at its end
	short  *lack    // too few members can be reached; nil if there are enough
	wrong  error    // the first view cannot be agreed on
}

// phase is where an identity is in its life. It only goes forward.
type phase uint8

const (
	outside phase = iota // wants to join
	inside
	left   // by its own wish
	fenced // was put out
	kicked // was put out for good
	closed
)

// lack says how far a group is from enough members.
type lack struct{ present, needed int }

// newKeeper starts the keeper of an identity: a member of the first view, or, if first
// is nil, a peer that is going to join.
func newKeeper(cfg *Config, ep Endpoint, first []Member, emit func(uint64, event.Body)) (*keeper, error) {
	k := &keeper{cfg: cfg, ep: ep, emit: emit, out: newOutboxes(ep.Network),
		peers: make(map[ID]*peer), approved: make(map[ID]approval),
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

// begin enters the first view, before there is a goroutine.
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

// ask makes a peer that is level ask members to let it in.
func (k *keeper) ask(contacts []ID) error {
	self, err := toMember(k.ep.Self)
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

// run is the keeper's goroutine.
func (k *keeper) run() {
	defer close(k.ended)
	defer k.set(func(s *standing) { s.phase = closed })
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
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
		case now := <-ticker.C:
			k.tick(now)
		case <-k.ctx.Done():
			return
		}
		k.drain()
	}
}

// do lets the keeper's goroutine call f, unless it has ended.
func (k *keeper) do(f func()) {
	select {
	case k.functions <- f:
	case <-k.ctx.Done():
	}
}

// tick lets time pass.
func (k *keeper) tick(now time.Time) {
	if late := now.Sub(k.ticked) - tickPeriod; late > lateTick {
		k.health.worse(now)
		for _, p := range k.peers {
			p.excuse(late)
		}
	}
	k.ticked = now
	k.ticks++
	if k.ticks%budgetTicks == 0 {
		clear(k.budget)
	}
	k.trustAll(now)
	if k.m != nil {
		k.m.Step(member.Stable{Steps: uint64(k.stable.Load())})
		k.m.Tick()
	}
	if k.ticks%beatTicks == 0 {
		k.beatInTurn()
		k.judgeAll(now)
		k.foreign.again(k)
	}
}

// drain does what the machine wants done.
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
	// Members of a new view have been introduced by now.
	for _, m := range r.Messages {
		k.out.send(ID(m.To), memberLetter(m))
	}
}

// noticed acts on what the machine has to say.
func (k *keeper) noticed(n member.Notice) {
	switch n.Kind {
	case member.Asked:
		k.asked(n.Request)
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

// set changes the standing and wakes up those who wait for a change. Nothing is left
// once the keeper is closed.
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

// now returns the standing and a channel that is closed when it changes.
func (k *keeper) now() (standing, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.standing, k.changed
}

// while returns a context that ends with ctx, or as soon as the condition does not
// hold any more. The caller calls the function that comes with it, which waits for
// the goroutine behind it.
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

// stop ends the keeper.
func (k *keeper) stop() {
	k.cancel()
	<-k.ended
	k.out.stop() // after the goroutine that starts its own
}
