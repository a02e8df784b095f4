package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
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

	roster     roster                             // the present view, with a record of each member that matters
	clock      tickClock                          // ticks, and how late they are
	m          *member.Machine                    // nil until a newcomer is level
	views      *member.Views                      // cache of recent views for m; if nil, m makes its own cache
	convert    func(v member.View, old View) View // fromView; a simulation replaces it, to convert each view once for all members
	launcher   singleLauncher                     // whether one launcher has started all members
	heartbeats heartbeatSender                    // to the members that watch this one
	watcher    watcher                            // which members can be reached
	admitter   admitter                           // of newcomers
	budget     budget                             // of control messages of outsiders
	entry      sessionEntry                       // into the next session
	stalls     map[string]event.Stall             // that were logged and are not over, by stallKey

	stable atomic.Int64 // last step that all members have committed

	loop    eventLoop
	status  watchedStatus           // status of this identity, for other goroutines
	report  selfReport              // what the heartbeats of this member report
	session atomic.Pointer[Session] // made last; the goroutine of Next stores it, and the driver's goroutine revokes it when the view is lost
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

// firstView returns the first view of a group of members.
func firstView(members []Member, grants []Grant) (member.View, error) {
	var all []member.Member
	for _, m := range members {
		one, err := toMember(m)
		if err != nil {
			return member.View{}, err
		}
		all = append(all, one)
	}
	var given []member.Grant
	for _, g := range grants {
		given = append(given, toGrant(g))
	}
	return member.First(all, given...)
}

// idleDriver returns a driver whose parts are connected to each other, but which has neither a
// goroutine nor a machine yet.
func idleDriver(cfg *Config, ep Endpoint, emit func(uint64, event.Body)) *driver {
	d := &driver{cfg: cfg, ep: ep, emit: emit, out: newSendQueues(ep.Network), convert: fromView,
		roster: roster{self: ep.Self, peers: make(map[ID]*peer)},
		loop:   newEventLoop(), status: watchedStatus{changed: make(chan struct{})}}
	d.launcher = newSingleLauncher(cfg.Sole, d.step, d.out)
	d.heartbeats = heartbeatSender{&d.roster, &d.clock, &d.report, &d.launcher, d.out}
	d.watcher = watcher{cfg: cfg, network: ep.Network, members: &d.roster, clock: &d.clock, heartbeats: &d.heartbeats, out: d.out, step: d.step}
	d.admitter = admitter{newcomers: newNewcomers(), cfg: cfg, relay: ep.Relay, members: &d.roster, launcher: &d.launcher, out: d.out,
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
		d.roster.first = d.convert(first, View{}).Hash()
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
	d.clock.ticked = time.Now()
	d.heartbeats.sendDue()
	events := d.ep.Network.Events()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil // the network is closed; stop follows
				continue
			}
			if !d.status.paused() {
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

// happened handles an event of the control network.
func (d *driver) happened(e PeerEvent) {
	switch e.Kind {
	case PeerMessage:
		d.receive(e.Peer, e.Data) // before received, which reads from the heartbeat whether the sender hears this member
		d.watcher.received(e.Peer)
	case PeerUp:
		d.watcher.connected(e.Peer)
	case PeerDown:
		d.watcher.disconnected(e.Peer)
	}
}

// span returns the number of ticks that the next wake-up handles together. It is one while the
// machine has work. While the machine is idle, or does not exist yet, one wake-up handles all ticks
// up to the next heartbeat or judgement. So a hundred idle processes on a host use little processor
// time.
func (d *driver) span() int {
	switch {
	case d.roster.entering(), d.m != nil && !d.m.Idle():
		return 1
	case d.roster.view.Epoch == 0: // nobody waits for a newcomer's heartbeats
		return slowTicks - d.clock.ticks%slowTicks
	}
	return d.heartbeats.next()
}

// tick handles a number of ticks: it detects lateness of this process, drives the machine, and
// sends heartbeats.
func (d *driver) tick(now time.Time, span int) {
	// A late tick shows that this process did not run: messages of other members may be waiting in
	// a queue.
	if late := d.clock.advance(now, span); late > 0 {
		for _, p := range d.roster.peers {
			p.excuse(late)
		}
	}
	if d.clock.ticks%budgetTicks == 0 {
		clear(d.budget)
	}
	d.watcher.unsuspectAll(now)
	if d.m != nil {
		d.m.Step(member.Stable{Steps: uint64(d.stable.Load())})
		for range span {
			d.m.Tick()
		}
	}
	if d.clock.ticks%heartbeatTicks == 0 {
		d.heartbeats.sendDue()
		d.watcher.judgeAll(now)
		d.watchEntry(now)
		d.launcher.again(&d.roster)
	}
}

// watchEntry logs, if a report is due, the members that have not begun to enter the session that
// this member enters, with one event for each reason that they report. It covers only the members
// that this member watches. Once the entry has lasted makeWayAfter, a member that was in an earlier
// session and reports no reason is asked to step down. A member that was in no session yet may take
// any time to prepare.
func (d *driver) watchEntry(now time.Time) {
	lasted, due := d.entry.due(now)
	if !due {
		return
	}
	v := d.entry.view
	absent := make(map[string][]string) // by phase, the short IDs of the members
	var phases []string
	for _, id := range d.roster.watched() {
		p := d.roster.peerOf(id)
		if v.Rank(id) < 0 || p.heartbeat.Entered >= v.Epoch {
			continue
		}
		phase := "not in the session"
		if p.heartbeat.Busy != "" {
			phase = p.heartbeat.Busy
		}
		if absent[phase] == nil {
			phases = append(phases, phase)
		}
		absent[phase] = append(absent[phase], id.Short())
		if p.heartbeat.Busy == "" && p.heartbeat.Entered > 0 && lasted >= makeWayAfter {
			p.blamed = now
			d.out.send(id, stepDown{Epoch: v.Epoch, Entered: p.heartbeat.Entered}.append(nil))
		}
	}
	var told []string
	for _, phase := range phases {
		told = append(told, absent[phase]...)
		d.emit(v.Epoch, event.Stall{Culprit: strings.Join(absent[phase], ","), Phase: phase,
			What: fmt.Sprintf("enter epoch %d", v.Epoch), SinceMS: milliseconds(lasted)})
	}
	if told != nil {
		d.entry.told = strings.Join(told, ",")
	}
}

// endEntry ends the entry into a session, and logs the end of its wait if the wait was logged.
func (d *driver) endEntry() {
	if e := d.entry; e.told != "" {
		d.emit(e.view.Epoch, event.Stall{Culprit: e.told, What: fmt.Sprintf("enter epoch %d", e.view.Epoch), SinceMS: milliseconds(time.Since(e.since)), Over: true})
	}
	d.entry.end()
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

// encodeMachineMessage encodes a control message that carries a message of a membership machine.
func encodeMachineMessage(m member.Message) []byte {
	return member.Encode([]byte{byte(controlMember)}, m)
}

// noticed handles a notice of the machine. A repeated QuorumLost only updates the numbers in the
// status: the event log gets one line, and the session is revoked once.
func (d *driver) noticed(n member.Notice) {
	switch n.Kind {
	case member.Asked:
		d.admitter.asked(n.Request)
	case member.Decided:
		d.emit(d.roster.view.Epoch, event.Decided{Why: d.roster.shorten(n.Why, n.Before)})
	case member.QuorumLost:
		again := d.roster.quorumLost
		d.roster.quorumLost = true
		d.status.set(func(s *status) { s.gap = &quorumGap{n.Present, n.Needed} })
		if again {
			return
		}
		d.emit(d.roster.view.Epoch, event.Quorum{State: "lost", Present: n.Present, Needed: n.Needed})
		d.revoke(fmt.Errorf("too few members: %d present, %d needed", n.Present, n.Needed))
	case member.QuorumBack:
		d.roster.quorumLost = false
		d.status.set(func(s *status) { s.gap = nil })
		d.emit(d.roster.view.Epoch, event.Quorum{State: "back", Present: n.Present, Needed: n.Needed})
	case member.Left:
		d.over(left, n)
	case member.Fenced:
		d.over(fenced, n)
	case member.Kicked:
		d.over(kicked, n)
	}
}

// entered makes v the present view. It logs the changes, introduces new members to the network before
// anything is sent to them, and revokes sessions that cannot go on.
func (d *driver) entered(mv member.View) {
	old := d.roster.view
	v := d.convert(mv, old)
	came, left := v.changes(old)
	d.roster.replace(v)
	if _, nobody := d.cfg.Sink.(event.Discard); !nobody {
		d.emit(v.Epoch, event.View{Members: short(v.Members), Voters: shortIDs(v.Voters), Reason: v.Reason})
	}
	d.welcome(came, old.Epoch > 0)
	gone := d.farewell(left, mv.Left)
	d.status.set(func(s *status) {
		s.phase, s.view = max(s.phase, inside), v
		s.former = slices.Concat(gone, s.former)
		s.former = s.former[:min(len(s.former), maxFormer)]
	})
	if d.cfg.OnView != nil {
		d.cfg.OnView(v)
	}
	// An error means that a member has given an invalid address. The failure detector then suspects
	// the member as unreachable.
	_ = d.ep.Network.Introduce(came)
	// A newcomer has not received the heartbeats that this member sent when it asked to leave. If
	// all members leave at the end of the job, only these heartbeats tell the newcomer of the end.
	if old.Epoch > 0 && d.report.get().Leaving {
		for _, m := range came {
			d.heartbeats.send(m.ID, false)
		}
	}
	switch v.Reason {
	// A renewed view has the same members, so the session must be revoked even though no member is
	// lost.
	case "renew":
		d.revoke(fmt.Errorf("epoch %d begins, because the session broke", v.Epoch))
	case "forced", "lost", "kick":
		d.revokeFor(gone)
	}
}

// short returns the short IDs of members.
func short(members []Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.ID.Short())
	}
	return out
}

// shortIDs returns the short forms of IDs.
func shortIDs(ids []ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.Short())
	}
	return out
}

// maxFormer bounds the lost members that are remembered.
const maxFormer = 32

// welcome records new members. The silence of a new member counts from now.
func (d *driver) welcome(came []Member, later bool) {
	foreign := func(m Member) bool { return m.Launcher != d.ep.Self.Launcher }
	if d.roster.view.Epoch > 1 && slices.ContainsFunc(d.roster.view.Members, foreign) {
		d.launcher.end()
		d.launcher.settled = true // the foreign member was admitted only after all members had acknowledged
	}
	for _, m := range came {
		if m.ID == d.ep.Self.ID {
			continue
		}
		d.admitter.newcomers.joined(m.ID)
		if len(d.roster.view.Members) <= greetedAll {
			d.roster.peerOf(m.ID)
		}
		if later {
			d.emit(d.roster.view.Epoch, event.Join{Who: m.ID.Short(), Reason: "admitted"})
		}
	}
	watched := d.roster.watched()
	for _, id := range watched {
		d.roster.peerOf(id)
	}
	// In a large group only records that matter are kept, so memory does not grow with the group.
	if len(d.roster.view.Members) > greetedAll {
		maps.DeleteFunc(d.roster.peers, func(id ID, p *peer) bool { return p.unremarkable() && !slices.Contains(watched, id) })
	}
}

// farewell removes the records of the members in gone, and returns the members that were lost or
// kicked. The members in asked have left at their own request.
func (d *driver) farewell(gone []Member, asked []member.ID) (lost []Member) {
	v := d.roster.view
	for _, m := range gone {
		p := d.roster.peers[m.ID]
		if p == nil {
			p = &peer{detector: detector{silence: newSilence(time.Now())}} // this member has no record
		}
		delete(d.roster.peers, m.ID)
		if p.heartbeat.Ended {
			d.status.endJob()
		}
		if slices.Contains(v.Barred, m.ID) {
			d.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: "kicked"})
			lost = append(lost, m)
			continue
		}
		// A change may contain both losses and leaves. A member that asked to leave may also be lost
		// before the others have agreed; it counts as left, too.
		if slices.Contains(asked, member.ID(m.ID)) || v.Reason == "leave" || p.heartbeat.Leaving || p.heartbeat.Stalled {
			d.emit(v.Epoch, event.Leave{Who: m.ID.Short(), Reason: p.leaves(time.Now())})
			continue
		}
		d.emit(v.Epoch, event.Lost{Who: m.ID.Short(), Cause: p.suspected, DetectMS: milliseconds(time.Since(p.silence.last)),
			LimitMS: milliseconds(p.exceeded)})
		lost = append(lost, m)
	}
	return lost
}

// over ends the membership of this identity.
func (d *driver) over(p phase, n member.Notice) {
	n.Why = d.roster.shorten(n.Why, n.Before)
	if mine := d.report.get(); p == left && mine.Stalled {
		p, n.Why = fenced, cmp.Or(mine.stepsDown(), "stalled: the others waited for this peer, and its program did not call Busy")
	}
	switch p { // announceLeave logs a leave, with the step at which this peer ended
	case fenced:
		d.emit(d.roster.view.Epoch, event.Fenced{Who: d.ep.Self.ID.Short(), Reason: n.Why})
		d.revoke(fmt.Errorf("put out of the group: %s", n.Why))
	case kicked:
		d.emit(d.roster.view.Epoch, event.Leave{Who: d.ep.Self.ID.Short(), Reason: "kicked"})
		d.revoke(errors.New("kicked out of the group"))
	}
	d.status.set(func(s *status) { s.phase, s.why = p, n.Why })
}

// stop ends the driver and waits for its goroutines. The network stays open: it belongs to the
// Endpoint, which the group closes afterwards.
func (d *driver) stop() {
	d.loop.cancel()
	<-d.loop.ended
	d.admitter.dialer.work.Wait()
	d.out.stop() // last, as the driver's goroutine starts the goroutines of the queues
}

// lastMembers returns the other members of the last view that this identity knew. With Config.Any
// it adds some members that were lost before: if this peer's branch of a divided group is given up,
// only the members of the other branch remain.
func (d *driver) lastMembers() []Member {
	s, _ := d.status.now()
	members := without(s.view.Members, d.ep.Self.ID)
	if d.cfg.Any {
		members = append(members, s.former...)
	}
	return members
}

// without returns a copy of members without the member id.
func without(members []Member, id ID) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.ID == id })
}

// enter records the session in use.
func (d *driver) enter(s *Session) {
	d.session.Store(s)
	d.loop.do(d.roster.agreed)
}

// revoke revokes the session, if there is one.
func (d *driver) revoke(cause error) {
	if s := d.session.Load(); s != nil {
		s.Comm.Revoke(cause)
	}
}

// revokeFor revokes the session if a lost member is in it. The error names the first such member.
func (d *driver) revokeFor(lost []Member) {
	s := d.session.Load()
	if s == nil {
		return
	}
	for _, m := range lost {
		if rank := s.View.Rank(m.ID); rank >= 0 {
			s.Comm.Revoke(&collective.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: "out of the group"})
			return
		}
	}
}

// reportStall logs a stall of the communicator of v. A single culprit that lives and reports no
// reason is asked to step down once the stall has lasted makeWayAfter. While this member enters the
// session, a culprit that does not answer usually waits itself in Connect for a member that
// watchEntry names, so its stall is not logged.
func (d *driver) reportStall(v View, s collective.Stall) {
	if d.entry.under(v.Epoch) && s.Phase == collective.PhaseSilent {
		return
	}
	var who []string
	phase := s.Phase
	for _, rank := range s.Culprits {
		id := v.Members[rank].ID
		who = append(who, id.Short())
		p := d.roster.peerOf(id)
		if p == nil {
			continue
		}
		if p.heartbeat.Busy != "" {
			// A body that is in a call explains nothing: then the state of the call counts.
			if s.Phase == collective.PhaseAbsent || p.heartbeat.Busy != bodyBusy && s.Phase != collective.PhaseDeadlock {
				phase = p.heartbeat.Busy
			}
			continue
		}
		if len(s.Culprits) > 1 {
			continue
		}
		// If the member leaves soon, the log calls it stalled, see peer.leaves.
		p.blamed = time.Now()
		if s.Quiet >= makeWayAfter {
			d.out.send(id, stepDown{Epoch: v.Epoch, Entered: v.Epoch}.append(nil))
		}
	}
	told := event.Stall{Culprit: strings.Join(who, ","), Phase: phase, What: s.Name(), SinceMS: milliseconds(s.Since)}
	d.emit(v.Epoch, told)
	if d.stalls == nil {
		d.stalls = make(map[string]event.Stall)
	}
	d.stalls[stallKey(v, s)] = told
}

// stallKey identifies a stall. Calls of one name in one session count as one.
func stallKey(v View, s collective.Stall) string { return fmt.Sprint(v.Epoch, " ", s.Name()) }

// reportStallOver logs that a stall is over which reportStall has logged.
func (d *driver) reportStallOver(v View, s collective.Stall) {
	told, ok := d.stalls[stallKey(v, s)]
	if !ok {
		return
	}
	delete(d.stalls, stallKey(v, s))
	told.SinceMS, told.Over = milliseconds(s.Since), true
	d.emit(v.Epoch, told)
}

// makeWayAfter is the shortest time for which the others wait for a live member before they ask it
// to step down. In a long call the time may be longer, because the communicator reports stalls at
// growing intervals.
const makeWayAfter = 30 * time.Second

// broken handles the end of v's session with an error while no later view is known. The argument
// blamed is the rank of the member that the error names, or -1. That member must first show that it
// lives. After that, or at once if the error names no member, the driver requests a view of the
// same members.
func (d *driver) broken(v View, blamed int) {
	d.loop.do(func() {
		if d.roster.view.Epoch != v.Epoch {
			return
		}
		if blamed >= 0 && v.Members[blamed].ID != d.ep.Self.ID {
			id := v.Members[blamed].ID
			if p := d.roster.peerOf(id); p != nil {
				d.watcher.requireAnswer(id, p, v.Epoch)
				return
			}
		}
		d.step(member.Renew{Epoch: v.Epoch})
	})
}

// dead records that the process of a member has certainly ended.
func (d *driver) dead(id ID) { d.loop.do(func() { d.watcher.dead(id) }) }

// leave requests to leave at the next boundary. The argument ended means that this member leaves
// because the job is at its end.
func (d *driver) leave(ended bool) {
	d.report.leave(ended)
	d.loop.do(func() {
		d.heartbeats.sendAll() // so that the others log a leave, not a loss
		d.step(member.Leave{})
	})
}

// makeWay handles a request to step down. This member then leaves, unless it has reported a reason
// (Busy), has entered another session since the request was sent, or itself waits for others to
// enter the session. Because this member itself votes for its leave, the others need no quorum
// without it.
func (d *driver) makeWay(y stepDown) {
	mine := d.report.get()
	if y.Epoch != d.roster.view.Epoch || mine.Entered > y.Entered || d.entry.waits(y.Epoch) || mine.Busy != "" || mine.Stalled {
		return
	}
	d.report.stall("")
	d.heartbeats.sendAll() // so that the others log that this member was stalled, not that it left at its own request
	d.step(member.Leave{})
}

// stepDown leaves as makeWay does, for a reason that this member knows itself.
func (d *driver) stepDown(why string) {
	d.loop.do(func() {
		now, _ := d.status.now()
		switch {
		case now.phase == left: // at a boundary that the others cannot reach
			d.revoke(errors.New(why))
		case now.phase == inside && len(d.roster.view.Members) > 1 && !d.report.get().Stalled:
			d.report.stall(why)
			d.heartbeats.sendAll()
			d.step(member.Leave{})
		}
	})
}

// depart leaves the group by agreement, and waits as settle does. A peer that is no member any more
// has nothing to wait for: Next has waited after a leave.
func (d *driver) depart() {
	if s, _ := d.status.now(); s.phase != inside {
		return
	}
	d.leave(true)
	d.settle()
}

// departPatience bounds the wait of settle. Where many peers share a core, an agreement takes
// seconds.
const departPatience = 5 * time.Second

// settle waits, for at most departPatience, until this peer is out of the view and until members
// that lag behind have received the decision: the program may end at once after that. It does not
// wait if this peer is no member yet, or if too few members are left to agree.
func (d *driver) settle() {
	deadline := time.NewTimer(departPatience)
	defer deadline.Stop()
	// settled changes without a change of the status, so it is polled.
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for {
		s, changed := d.status.now()
		switch {
		case s.phase == outside || s.phase > inside && d.settled():
			return
		// Without a quorum the members cannot agree. The others later detect that this peer is
		// silent or gone.
		case s.gap != nil && s.phase != fenced:
			return
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-deadline.C:
			return
		}
	}
}

// settled reports whether no member waits for a decision from this peer.
func (d *driver) settled() bool {
	settled, ok := ask(&d.loop, func() bool { return d.m == nil || d.m.Settled() })
	return settled || !ok
}

// mistaken ends the loops of all members because of a mistake of the program, which err describes.
// It returns when the members that watch this one know of the mistake or are certainly gone, when
// ctx ends, and at the latest mistakeTerm after this member has learned of the mistake. A newcomer
// ends alone: members believe only members.
func (d *driver) mistaken(ctx context.Context, err error) {
	var own mistakeError
	found := errors.As(err, &own)                                                                    // and not learned of from another member, by the end of a session
	_, _ = ask(&d.loop, func() any { d.learnMistake(d.ep.Self.ID, textOf(err), found); return nil }) // returns when the time of the mistake is recorded
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for d.report.sinceMistake() < mistakeTerm {
		now, _ := d.status.now()
		known, ok := ask(&d.loop, d.roster.knowMistake)
		if known || !ok || now.phase != inside {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// mistakeTerm bounds the wait for the members that do not know of a mistake yet. A member of an
// overloaded host may not run for seconds.
const mistakeTerm = 10 * time.Second

// textOf returns the description of a mistake, without the places that have passed err on.
func textOf(err error) string {
	var found mistakeError
	if errors.As(err, &found) {
		return found.Error()
	}
	cause := transport.CauseOf(0, err)
	if aborted, ok := cause.(*collective.AbortError); ok {
		return aborted.Cause
	}
	return cause.Error()
}

// learnMistake records a mistake that the member from passes on, or that this member has found, and tells
// the others. Only the first mistake counts.
func (d *driver) learnMistake(from ID, text string, found bool) {
	if d.report.get().Mistake != "" {
		return
	}
	d.report.mistake(text)
	why := &collective.AbortError{Rank: d.roster.view.Rank(from), Cause: d.report.get().Mistake, Mistake: true}
	d.emit(d.roster.view.Epoch, event.Mistake{Reason: why.Cause, Found: found})
	d.status.set(func(s *status) { s.wrong = fmt.Errorf("%w: %w", ErrNoView, why) })
	d.revoke(why)
	d.heartbeats.sendAll()
}

// eventLoop lets other goroutines run functions in the goroutine of a driver, which owns the
// driver's state without a lock (the actor model).
type eventLoop struct {
	functions chan func()     // to be called by the driver's goroutine
	ctx       context.Context // ends when the driver is stopped
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the goroutine has ended
}

// newEventLoop returns a loop without a goroutine.
func newEventLoop() eventLoop {
	l := eventLoop{functions: make(chan func()), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// do passes f to the driver's goroutine, which calls f. It returns when the call begins. If the
// driver has ended, f is not called.
func (e *eventLoop) do(f func()) {
	select {
	case e.functions <- f:
	case <-e.ctx.Done():
	}
}

// ask calls f in the driver's goroutine and returns its result. ok is false if the driver has ended
// before f returned; f may still run then, so f must not write to variables of the caller.
func ask[T any](l *eventLoop, f func() T) (answer T, ok bool) {
	answers := make(chan T, 1)
	l.do(func() { answers <- f() })
	select {
	case answer = <-answers:
		return answer, true
	case <-l.ctx.Done():
		return answer, false
	}
}
