package elastic

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

const (
	// tickPeriod is the length of a tick, the unit of time of the membership machine.
	tickPeriod = 10 * time.Millisecond
	// A tick that is late by more than lateTick shows that this process was stopped or starved.
	lateTick = 100 * time.Millisecond
)

// driver keeps one identity of this process in its group. It drives the membership machine, sends
// heartbeats, and judges which members live. The goroutine of run owns the fields, except the
// parts with locks of their own. The driver publishes a status, and other goroutines pass functions
// to its goroutine (eventLoop).
//
//	Network.Events --+
//	failures --------+--> machine --> Ready --> sendQueues
//	ticks -----------+                  |
//	functions -------+                  +-----> status, events, revocations
type driver struct {
	cfg  *Config
	ep   Endpoint
	emit func(epoch uint64, body event.Body)
	out  *sendQueues

	roster
	tickClock
	m          *member.Machine                    // nil until a newcomer is level
	views      *member.Views                      // cache of recent views for m; if nil, m makes its own cache
	convert    func(v member.View, old View) View // fromView; a simulation replaces it, to convert each view once for all members
	launcher   singleLauncher                     // whether one launcher has started all members
	heartbeats heartbeatSender                    // to the members that watch this one
	watcher    watcher                            // which members can be reached
	admission  admission                          // of newcomers
	budget     budget                             // of control messages of outsiders
	entry      entry                              // into the next session

	stable atomic.Int64 // last step that all members have committed

	loop    eventLoop
	status  watchedStatus // status of this identity, for other goroutines
	report  selfReport    // what the heartbeats of this member report
	session sessionInUse
}

// newDriver starts the driver of an identity. The identity is a member of the first view, or a
// newcomer if first is nil.
func newDriver(cfg *Config, ep Endpoint, first []Member, emit func(uint64, event.Body)) (*driver, error) {
	d := idleDriver(cfg, ep, emit)
	if first != nil {
		v, err := firstView(first, cfg.Grants)
		if err == nil {
			err = d.begin(v)
		}
		if err != nil {
			d.loop.cancel()
			return nil, fmt.Errorf("first view: %w", err)
		}
		d.drain()
	}
	go d.run()
	return d, nil
}

// idleDriver returns a driver whose parts are connected to each other, but which has neither a
// goroutine nor a machine yet.
func idleDriver(cfg *Config, ep Endpoint, emit func(uint64, event.Body)) *driver {
	d := &driver{cfg: cfg, ep: ep, emit: emit, out: newSendQueues(ep.Network), convert: fromView,
		roster: roster{self: ep.Self, peers: make(map[ID]*peer)},
		loop:   newEventLoop(), status: watchedStatus{changed: make(chan struct{})}}
	d.launcher = newSingleLauncher(cfg.Sole, d.step, d.out)
	d.heartbeats = heartbeatSender{&d.roster, &d.tickClock, &d.report, &d.launcher, d.out}
	d.watcher = watcher{cfg: cfg, network: ep.Network, members: &d.roster, clock: &d.tickClock, heartbeats: &d.heartbeats, out: d.out, step: d.step}
	d.admission = admission{newcomers: newNewcomers(), cfg: cfg, relay: ep.Relay, members: &d.roster, launcher: &d.launcher, out: d.out,
		loop: &d.loop, network: ep.Network, dialer: reverseDialer{running: make(map[ID]bool)}}
	return d
}

// begin enters the first view. It runs before the driver's goroutine starts.
func (d *driver) begin(first member.View) error {
	cfg, err := d.machineConfig(d.ep.Self)
	if err != nil {
		return err
	}
	if d.m, err = member.NewIn(cfg, first); err != nil {
		return err
	}
	d.launcher.on = d.cfg.Sole
	d.m.Step(member.Sole{On: d.launcher.on})
	if len(first.Members) > 1 {
		d.first = d.convert(first, View{}).Hash()
	}
	return nil
}

// machineConfig returns the configuration of this peer's membership machine. self describes this
// peer.
func (d *driver) machineConfig(self Member) (member.Config, error) {
	m, err := toMember(self)
	return member.Config{Self: m, Any: d.cfg.Any, Keys: d.ep.keys(), Views: d.views}, err
}

// ask starts the machine of a newcomer that is level, if it is not running yet, and tells the
// machine which contacts to ask for admission.
func (d *driver) ask(contacts []ID) error {
	cfg, err := d.machineConfig(d.ep.self())
	if err != nil {
		return err
	}
	for _, id := range contacts {
		cfg.Contacts = append(cfg.Contacts, member.ID(id))
	}
	d.loop.do(func() {
		if d.m == nil {
			d.m = member.NewJoiner(cfg)
			return
		}
		for _, id := range cfg.Contacts {
			d.m.Step(member.Met{Peer: id})
		}
	})
	return nil
}

// step passes an event to the machine, if there is one.
func (d *driver) step(e member.Event) {
	if d.m != nil {
		d.m.Step(e)
	}
}

// run is the driver's goroutine. It ends when stop is called.
func (d *driver) run() {
	defer close(d.loop.ended)
	defer d.status.set(func(s *status) { s.phase = closed })
	span := 1
	timer := time.NewTimer(tickPeriod)
	defer timer.Stop()
	d.ticked = time.Now()
	d.heartbeats.sendDue()
	events := d.ep.Network.Events()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil // the network is closed; stop follows
				continue
			}
			if !d.status.held() {
				d.happened(e)
			}
		case f := <-d.out.failures:
			d.watcher.notSent(f)
		case f := <-d.loop.functions:
			f()
		case now := <-timer.C:
			d.tick(now, span)
			span = d.span()
			timer.Reset(time.Duration(span) * tickPeriod)
		case <-d.loop.ctx.Done():
			return
		}
		d.drain()
		if span > 1 && d.span() == 1 {
			span = 1
			timer.Reset(tickPeriod)
		}
	}
}

// span returns the number of ticks that the next wake-up handles together. It is one while the
// machine has work. While the machine is idle, or does not exist yet, one wake-up handles all ticks
// up to the next heartbeat or judgement. So a hundred idle processes on a host use little processor
// time.
func (d *driver) span() int {
	switch {
	case d.entering(), d.m != nil && !d.m.Idle():
		return 1
	case d.view.Epoch == 0: // nobody waits for a newcomer's heartbeats
		return slowTicks - d.ticks%slowTicks
	}
	return d.heartbeats.next()
}

// tick handles a number of ticks: it detects lateness of this process, drives the machine, and
// sends heartbeats.
func (d *driver) tick(now time.Time, span int) {
	// A late tick shows that this process did not run: messages of other members may be waiting in
	// a queue.
	if late := d.advance(now, span); late > 0 {
		for _, p := range d.peers {
			p.excuse(late)
		}
	}
	if d.ticks%budgetTicks == 0 {
		clear(d.budget)
	}
	d.watcher.unsuspectAll(now)
	if d.m != nil {
		d.m.Step(member.Stable{Steps: uint64(d.stable.Load())})
		for range span {
			d.m.Tick()
		}
	}
	if d.ticks%heartbeatTicks == 0 {
		d.heartbeats.sendDue()
		d.watcher.judgeAll(now)
		d.watchEntry(now)
		d.launcher.again(&d.roster)
	}
}

// drain carries out the outputs of the machine.
func (d *driver) drain() {
	if d.m == nil {
		return
	}
	r := d.m.Ready()
	for _, v := range r.Views {
		d.entered(v)
	}
	for _, n := range r.Notices {
		d.noticed(n)
	}
	// By now the method entered has introduced the members of a new view to the network.
	for _, m := range r.Messages {
		d.out.send(ID(m.To), encodeMachineMessage(m))
	}
}

// noticed handles a notice of the machine. A repeated QuorumLost only updates the numbers in the
// status: the event log gets one line, and the session is revoked once.
func (d *driver) noticed(n member.Notice) {
	switch n.Kind {
	case member.Asked:
		d.admission.asked(n.Request)
	case member.Decided:
		d.emit(d.view.Epoch, event.Decided{Why: d.shorten(n.Why, n.Before)})
	case member.QuorumLost:
		again := d.quorumLost
		d.quorumLost = true
		d.status.set(func(s *status) { s.gap = &quorumGap{n.Present, n.Needed} })
		if again {
			return
		}
		d.emit(d.view.Epoch, event.Quorum{State: "lost", Present: n.Present, Needed: n.Needed})
		d.session.revoke(fmt.Errorf("too few members: %d present, %d needed", n.Present, n.Needed))
	case member.QuorumBack:
		d.quorumLost = false
		d.status.set(func(s *status) { s.gap = nil })
		d.emit(d.view.Epoch, event.Quorum{State: "back", Present: n.Present, Needed: n.Needed})
	case member.Left:
		d.over(left, n)
	case member.Fenced:
		d.over(fenced, n)
	case member.Kicked:
		d.over(kicked, n)
	}
}

// stop ends the driver and waits for its goroutines. The network stays open: it belongs to the
// Endpoint, which the group closes afterwards.
func (d *driver) stop() {
	d.loop.cancel()
	<-d.loop.ended
	d.admission.dialer.work.Wait()
	d.out.stop() // last, as the driver's goroutine starts the goroutines of the queues
}
