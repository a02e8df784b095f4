package elastic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
)

// Errors of Group.Err and Sessions.Next, to be tested with errors.Is. All wrap ErrNoView.
var (
	// ErrNoView means that no further session exists for this peer.
	ErrNoView = errors.New("no further view")
	// ErrLeft means that this peer has left as asked, by Leave. Its state has not reached the last
	// step. Under a launcher SIGTERM calls Leave, and the exit status of a peer that has left as asked
	// does not count.
	ErrLeft = fmt.Errorf("%w: left as asked", ErrNoView)
	// ErrLast is an ErrLeft: this peer has left as asked, and it was the last member. The state of
	// the group is lost unless this peer saves it.
	ErrLast = fmt.Errorf("%w, as the last member", ErrLeft)
	// ErrFenced means that the group went on without this peer. This peer's state is void.
	ErrFenced = fmt.Errorf("%w: put out of the group", ErrNoView)
	// ErrQuorum means that too few members were present for the whole RejoinTimeout.
	ErrQuorum = fmt.Errorf("%w: too few peers", ErrNoView)
	// ErrRefused means that the job refuses this peer for good.
	ErrRefused = fmt.Errorf("%w: refused", ErrNoView)
	// ErrSettings means that members have registered different settings. It is also
	// collective.ErrMistake. A member that has not compared the settings itself gets another error
	// with the same description.
	ErrSettings = fmt.Errorf("%w: peers differ", ErrNoView)
)

// ErrKicked means that this peer was put out on request and is never admitted again.
var ErrKicked = fmt.Errorf("%w: kicked", ErrNoView)

// ErrFinished means that the job had finished before this peer was admitted.
var ErrFinished = fmt.Errorf("%w: the job has finished", ErrNoView)

// Config describes this peer, its access to the other peers, and the conditions under which the
// group goes on.
type Config struct {
	// Endpoint is the first identity of this process.
	Endpoint
	// Peers are the members of the first view in rank order, Self among them; nil for a newcomer to
	// a running job.
	Peers []Member
	// Job identifies the job (see Run): any text that is equal at all members, and differs from
	// other jobs. "" derives it from Peers. A newcomer may leave it out.
	Job string
	// Contacts returns members to which a newcomer may make its offer. It is called repeatedly and
	// may return more members over time.
	Contacts func() []Member
	// Reopen makes a fresh identity after the present one was fenced. The State is then void, and
	// this peer copies it again. If Reopen is nil, a fenced peer cannot come back.
	Reopen func(ctx context.Context) (Endpoint, error)

	// Grants are the grants of the first view, the same at all members.
	Grants []Grant
	// Entry, if set, is called with the ID of a newcomer that has proved its right to join to this
	// member, and returns the right by which the newcomer joins. ErrNotYet refuses the newcomer for
	// now, and any other error for good; the newcomer receives the error's text. Entry must not
	// block. Without Entry all newcomers may join.
	Entry func(ID) (Entry, error)

	// Sole asserts that, as far as this peer's launcher knows, the launcher has started all peers
	// of the job, and that the launcher reports their deaths by Admin.Dead. The group itself
	// detects when this is no longer true because a peer of another launcher joins.
	Sole bool
	// Any lets any survivors go on; otherwise a majority of the voters must agree.
	Any bool
	// MinPeers is the smallest number of members with which the group begins and goes on; 0 means
	// 1.
	MinPeers int
	// RejoinTimeout bounds the wait for peers when too few are left; 0 means DefaultRejoinTimeout.
	RejoinTimeout time.Duration
	// StateRate limits the state that this peer sends to newcomers, in bytes a second; 0 means no
	// limit.
	StateRate int
	// OnSuspect, if set, is called with each member that is silent or unreachable, repeatedly as
	// long as the member is suspected. A launcher can check whether it has started the member's
	// process and whether that process is stopped. OnSuspect must not block.
	OnSuspect func(ID)
	// OnView, if set, is called with each view that this peer enters, in order, before anything is
	// sent to the new members. The peer may enter the view's session much later, for example
	// because too few members are present. OnView must not block.
	OnView func(View)
	// Inspect, if set, returns the state of a member's process. It is called for members of the
	// same launcher and host whose Process is set. A silent member whose process is busy is not
	// suspected. Inspect must not block.
	Inspect func(Member) ProcessState
	// OnRetry, if set, implements Session.Retry.
	OnRetry func(ctx context.Context, r Retry) (done func(), err error)
	// Started, if set, is called by Join with the group that it will return, before Join waits for
	// the other members. Group.Leave and Admin.Dead may be called from then on.
	Started func(*Group)

	Sink event.Sink // receives the events of this peer; nil discards them
	Comm collective.Options
	// Mirror is memory that outlives this process, in which the record of its calls is kept, see flight.Ring.Mirror; nil for none.
	Mirror []byte
	// Closers are closed, in order, after the endpoint at the end of Close.
	Closers []io.Closer
}

// Group is a peer's membership in a job. A program trains with [Group.Steps], checks [Group.Err] and
// ends with [Group.Close]. [Group.Sessions] and [Group.Admin] are for packages below a program. All
// methods are safe for concurrent use, except that Steps and Err belong to one goroutine, which also
// owns the State.
type Group struct {
	cfg      Config
	onShort  func()        // set by Sessions.OnQuorumLost
	orders   orders        // of the program and its launcher
	identity identity      // of this process, with its driver
	held     heldState     // the State and what belongs to it
	sessions openSessions  // the one in use, and those that are being closed
	loops    loops         // the calls of Steps; owned by the goroutine of the body
	requests requestServer // of other peers
	wishes   wish.Wishes   // for checkpoints
	outcome  outcome
	leftLog  sync.Once // the log has the leave of this peer
	calls    *flight.Ring
}

// Errors for a group or session that Join and Next did not make, and for a nil context.
var (
	errNoGroup   = errors.New("the group is nil, or was not made by Join")
	errNoSession = errors.New("the session is nil, or was not made by Next")
	errNoContext = errors.New("the context is nil")
)

// current returns the driver of the present identity, or nil.
func (g *Group) current() *driver { return g.identity.current() }

// made reports whether Join made g. On a nil or zero Group, getters return zero values, calls
// without an error do nothing, and the other calls fail.
func (g *Group) made() bool { return g != nil && g.orders.leaves != nil }

// Admin returns the launcher's side of the group.
func (g *Group) Admin() Admin { return Admin{g} }

// Sessions returns the group's side for a loop over sessions.
func (g *Group) Sessions() Sessions { return Sessions{g} }

// Join makes this peer a member of the job. For a member of the first view it returns when all
// members of the view have agreed and are connected. For a newcomer Join returns at once, and the
// first call of Next gets the newcomer admitted. The end of ctx ends Join with an error. If Join
// returns an error, it has closed Config.Closers.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Sink == nil {
		cfg.Sink = event.Discard{}
	}
	cfg.MinPeers = max(cfg.MinPeers, 1)
	if cfg.RejoinTimeout == 0 {
		cfg.RejoinTimeout = DefaultRejoinTimeout
	}
	g := &Group{cfg: cfg, orders: newOrders(), calls: flight.New(time.Now())}
	g.requests = requestServer{cfg: &g.cfg, identity: &g.identity, registration: &g.held.registration, wishes: &g.wishes}
	g.calls.Mirror(cfg.Mirror)
	g.held.advanced = func(step int64) { g.current().report.commit(step) }
	err := errNoContext
	if ctx != nil {
		err = g.join(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("elastic: join: %w", err), g.Close())
	}
	return g, nil
}

// DefaultRejoinTimeout is the default of Config.RejoinTimeout.
const DefaultRejoinTimeout = 10 * time.Minute

// join starts the driver and enters the first view.
func (g *Group) join(ctx context.Context) error {
	if g.cfg.Network == nil {
		return errors.New("the Endpoint has no Network")
	}
	if g.cfg.Peers == nil && g.cfg.Contacts == nil {
		return errors.New("the Config has neither Peers nor Contacts: set Peers to the members of the first view, or Contacts to find members of a running job")
	}
	for i, m := range g.cfg.Peers {
		if m.ID == "" || slices.IndexFunc(g.cfg.Peers, func(o Member) bool { return o.ID == m.ID }) != i {
			return fmt.Errorf("member %d of the first view: ID %q is empty or not unique", i, m.ID)
		}
	}
	d, err := newDriver(&g.cfg, g.cfg.Endpoint, g.cfg.Peers, emitter(g.cfg.Sink, g.cfg.Self))
	if err != nil {
		return err
	}
	g.identity.replace(d, nil)
	g.held.void, g.held.fresh = g.cfg.Peers == nil, g.cfg.Peers == nil
	g.held.ids = newRunIDs(&g.cfg)
	if g.cfg.Started != nil {
		g.cfg.Started(g)
	}
	g.cfg.Network.Serve(g.requests.answer)
	if len(g.cfg.Peers) < g.cfg.MinPeers {
		return nil // newcomers need the state, which does not exist before the first Next
	}
	g.sessions.pending, err = g.next(ctx, 0)
	return err
}

// newRunIDs returns the IDs of a member of the first view, and of a newcomer. If the configuration
// does not name the job, its ID follows from the first view, whose members are in no other job. A
// newcomer gets what it lacks from the members.
func newRunIDs(cfg *Config) (r runIDs) {
	h := xxhash.New()
	_, _ = h.WriteString(cfg.Job) // never fails
	if cfg.Job == "" {
		for _, m := range cfg.Peers {
			_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(m.ID))))
			_, _ = h.WriteString(string(m.ID))
		}
	}
	if cfg.Job != "" || len(cfg.Peers) > 0 {
		r.job = max(h.Sum64(), 1)
	}
	if len(cfg.Peers) > 0 {
		r.run = r.job
	}
	return r
}

// Busy reports that this member makes no progress for a known reason, until done is called. Stalls
// that this member causes meanwhile are logged with the reason, and the member is not asked to step
// down.
func (g *Group) Busy(what string) (done func()) {
	if !g.made() {
		return func() {}
	}
	d := g.current()
	d.report.busy(what)
	return func() { d.report.busy("") }
}

// StepDown leaves the group now, within a step, and this peer joins again as a newcomer: for a member that
// knows that it makes no progress for a while, because the process that computes for it is stopped. The
// others go on at once, without a quorum of their own, and their log has the reason why, at most 100 bytes.
// The session of this member is revoked. Next, or the loop of Steps, then calls Config.Reopen, which may
// block until the member can go on, and without Reopen returns ErrFenced. StepDown does not wait. It does
// nothing for the only member of a group, and for a peer that is no member.
func (g *Group) StepDown(why string) {
	if g.made() {
		g.current().stepDown(why)
	}
}

// Leave requests to leave the group at the next boundary between two steps, or one step later if the
// turns of the loop call Turn.Leaving. Err, and Sessions.Next, then return ErrLeft. Leave does not
// wait.
func (g *Group) Leave() {
	if g.made() && g.orders.leave() {
		g.current().leave(false)
	}
}

// leaveAtOnce leaves as Leave does, but without a further turn.
func (g *Group) leaveAtOnce() {
	g.orders.leave()
	g.current().leave(false)
}

// Report sets the result that Close passes to the launcher, if a loop of Steps has come to its end.
// The last call before Close counts. elrun shows the result in the job's last line. One peer may
// report, or all; if several do, the peer with the lowest local index counts. A number that is not
// finite is an error, and the result is not reported then.
func (g *Group) Report(r Result) error {
	if !g.made() {
		return fmt.Errorf("elastic: report: %w", errNoGroup)
	}
	for name, x := range map[string]*float64{"accuracy": r.Accuracy, "loss": r.Loss} {
		if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0)) {
			return fmt.Errorf("elastic: report: the %s is %v, want a finite number", name, *x)
		}
	}
	g.outcome.report(r)
	return nil
}

// Result is the quality of the trained model, as the program has measured it. A nil field is
// unknown.
type Result struct {
	Accuracy *float64 // the fraction of the test set that is classified correctly, from 0 to 1
	Loss     *float64 // the mean loss over the test set
}

// Steps trains state together with the other members until all of them have committed the step with
// the number until. It yields a Turn for each attempt at a step. The body computes this peer's part
// of the step and reduces it over t.Comm. When the calls have returned nil the body commits the
// result to state, which increments state.Step().
//
//	for t := range g.Steps(ctx, state, steps) {
//		lo, hi := t.Part(batch)
//		sum := m.Gradient(lo, hi)
//		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
//			continue // the step is tried again
//		}
//		m.Commit(sum)
//	}
//	return g.Err()
//
// After an error of a call the body only continues the loop. The turn has recorded the error, and
// the step is tried again, without the members that died and with newcomers. All peers run the same
// loop over the same state and end at the same step: the step until, or an earlier one if a body
// calls Turn.Stop. Err returns nil if and only if this peer has committed all these steps. So a
// program prints and saves its result only after it has checked Err: a peer that was asked to leave
// (ErrLeft) ends before.
//
// Mistakes of the program end the loop with an error at every peer: a turn that neither failed nor
// committed; a turn that committed more than one step, or committed although a call in it had
// failed; a body that leaves the loop by break, return or a panic; and peers that differ in until,
// in settings, in the argument of Part, or in their states. States are compared before the first
// step, then as often as 1 % of the time allows, and after the last step. In the first comparison
// peers that differ copy the most common state; of several equally common states they copy the
// state of the lowest rank.
//
// The state holds all that the next step depends on: parameters, the optimiser's memory, the state
// of random generators, the position in the data. Vectors, Gob and Binary make a State of a
// program's variables. Only the body and, between turns, the group may use the state. A later call
// of Steps continues where the last one ended, with a state of the same kind and the same options.
//
// A step costs one AllGather of a few words besides the calls of the body. ctx bounds the waits
// between turns; its end ends the loop.
func (g *Group) Steps(ctx context.Context, state State, until int64, options ...Option) iter.Seq[*Turn] {
	return func(yield func(*Turn) bool) {
		if !g.made() {
			return
		}
		l := &loop{group: g, ctx: ctx, state: state, until: until}
		// A panic of the body skips the assignments below, so the error is set before.
		g.loops.err = fmt.Errorf("elastic: steps: %w", errUnwound)
		err := l.prepare(options)
		if err != nil {
			// The other members wait for this peer, so its wrong arguments end their loops, too.
			err = fmt.Errorf("elastic: steps: %w", mistakeError{err})
		} else {
			err = l.sessions(yield)
		}
		if g.orders.deferLeave(false) {
			g.current().leave(false)
		}
		if errors.Is(err, collective.ErrMistake) {
			g.current().mistaken(l.ctx, err)
		}
		g.loops.err = nil
		switch {
		case err == nil:
			var done *event.Done
			done, g.loops.err = l.outcome()
			g.outcome.end(done, g.loops.epoch)
			g.Sessions().Emit(g.loops.epoch, state.Step(), event.Complete{})
		case errors.Is(err, ErrLast):
			g.loops.err = l.ended(ErrLast)
		case errors.Is(err, ErrLeft):
			g.loops.err = l.ended(ErrLeft)
		case errors.Is(err, ErrFinished):
			g.loops.err = l.ended(ErrFinished)
		default:
			g.loops.err = err
		}
	}
}

// errUnwound is what Err returns if the body of the loop did not return.
var errUnwound = errors.New("the body of the loop ended by a panic or runtime.Goexit")

// Err returns why the last Steps ended early, and nil if and only if this peer has committed all
// steps: up to until, or up to the step of a Turn.Stop. ErrLeft means that this peer has left as
// asked, ErrFinished that it came after the job had finished; package launch counts neither as a
// failure, whatever the exit status of the program is. The other errors are those of Sessions.Next,
// of the calls, and of mistakes. After an error the state is that of an earlier step. Call Err only
// in the goroutine of the loop.
func (g *Group) Err() error {
	if !g.made() {
		return fmt.Errorf("elastic: steps: %w", errNoGroup)
	}
	return g.loops.err
}

// Self returns this peer, under its present identity. The ID changes when a fenced peer comes back,
// so a caller must not keep it for longer than a session.
func (g *Group) Self() Member {
	if !g.made() {
		return Member{}
	}
	if d := g.current(); d != nil {
		return d.ep.Self
	}
	return g.cfg.Self
}

// View returns the present view, with the valid grants. If this peer has been in no view yet, the
// result has epoch 0 and no members.
func (g *Group) View() View {
	if !g.made() {
		return View{}
	}
	s, _ := g.current().status.now()
	return s.view
}

// emitter returns a function that logs events under an identity.
func emitter(sink event.Sink, self Member) func(uint64, event.Body) {
	return func(epoch uint64, body event.Body) {
		sink.Emit(event.Event{Time: time.Now(), Peer: self.ID.Short(), Index: self.Index, Epoch: epoch, Body: body})
	}
}

// Close leaves the group, by agreement if that takes no longer than five seconds. Then it ends the
// session and waits for the goroutines of the group. If a loop of Steps has reached its end, Close
// first logs its result (see Report). Members that still wait for this one in a call get an error,
// so all peers call Close after the same last call. Close of a closed group or of nil does nothing.
func (g *Group) Close() error {
	if !g.made() {
		return nil
	}
	d, first := g.identity.close()
	if !first {
		return nil
	}
	if done, epoch := g.outcome.get(); done != nil {
		g.Sessions().Emit(epoch, done.Steps, *done)
	}
	var errs []error
	if d != nil {
		s, _ := d.status.now()
		mistaken := errors.Is(s.wrong, collective.ErrMistake)
		if !mistaken {
			d.depart() // otherwise a member that does not know of the mistake might go on in the next view
		}
		// A member that could not agree with the others on its leave has closed its group all the same.
		if s, _ = d.status.now(); s.phase == left || s.phase == inside && !mistaken {
			announceLeave(g, g.leaveReason())
		}
		g.sessions.close()
		d.stop()
	}
	if g.held.donor != nil {
		g.held.donor.Close()
	}
	ep := g.cfg.Endpoint
	if d != nil {
		ep = d.ep
	}
	if ep.Close != nil {
		errs = append(errs, ep.Close())
	}
	for _, c := range g.cfg.Closers {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("elastic: close: %w", err)
	}
	return nil
}

// announceLeave logs that the peer of g has left, once, with the last step that its state has
// committed. The goroutine of Next calls it, or Close.
func announceLeave(g *Group, reason string) {
	g.leftLog.Do(func() {
		d := g.current()
		s, _ := d.status.now()
		if d.report.get().Failed {
			reason = leftFailed
		}
		g.Sessions().Emit(s.view.Epoch, d.report.committed(), event.Leave{Who: d.ep.Self.ID.Short(), Reason: reason})
	})
}

// leaveReason returns why Close leaves: a request to leave counts unless the last loop has come to its
// end.
func (g *Group) leaveReason() string {
	done, _ := g.outcome.get()
	select {
	case <-g.orders.leaves:
		if done == nil {
			return leftAsked
		}
	default:
	}
	return leftClosed
}

// The reasons of an event.Leave about a peer that was neither kicked nor stalled.
const (
	leftAsked  = "asked"  // Leave was called
	leftClosed = "closed" // the program has closed its group
	leftFailed = "failed" // the loop of the program has failed at this peer only
)

// orders holds the requests that a program or its launcher has made to a group. It is safe for
// concurrent use.
type orders struct {
	leaves chan struct{} // closed by leave
	reason chan error    // the latest reason why there is no member to join

	mu       sync.Mutex
	asked    bool // leave was called
	deferred bool // the turns of the loop hand over before this peer leaves
}

// newOrders returns orders without any order.
func newOrders() orders {
	return orders{leaves: make(chan struct{}), reason: make(chan error, 1)}
}

// leave orders the group to leave. It reports whether the group leaves at once; otherwise the loop
// leaves after it has handed over.
func (o *orders) leave() (atOnce bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.asked {
		o.asked = true
		close(o.leaves)
	}
	return !o.deferred
}

// deferLeave sets whether a later leave waits for the loop. It reports whether a leave waits.
func (o *orders) deferLeave(deferred bool) (waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waits = o.asked && o.deferred
	o.deferred = deferred
	return waits
}

// waiting reports whether a leave waits for the loop.
func (o *orders) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked && o.deferred
}

// endWait ends a newcomer's wait for members with err. It replaces an earlier error that the
// newcomer has not read yet.
func (o *orders) endWait(err error) {
	select {
	case <-o.reason:
	default:
	}
	select {
	case o.reason <- err:
	default:
	}
}

// forget drops the order that ends a wait, as the wait has ended.
func (o *orders) forget() {
	select {
	case <-o.reason:
	default:
	}
}

// identity holds the driver of a process's present identity in its group. A process that was put
// out gets another identity. identity is safe for concurrent use.
type identity struct {
	mu     sync.Mutex
	closed bool     // the group is closed: no other identity follows
	driver *driver  // of the present identity; nil before the first
	former []Member // members that the previous identity knew; the present identity makes offers to them
}

// current returns the driver of the present identity, or nil.
func (i *identity) current() *driver {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.driver
}

// known returns the members that the previous identity knew.
func (i *identity) known() []Member {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.former
}

// replace makes d the driver of the present identity. The argument former lists additional members
// to which the peer may make its offer. replace returns false if the group was closed.
func (i *identity) replace(d *driver, former []Member) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.driver, i.former = d, former
	return true
}

// isOpen reports whether another identity may follow.
func (i *identity) isOpen() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.closed
}

// close makes further calls of replace fail. It returns the driver of the present identity, and
// whether this is the first call.
func (i *identity) close() (d *driver, first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first, i.closed = !i.closed, true
	return i.driver, first
}

// outcome holds the event for the end of the last loop of Steps, if that loop has come to its end,
// and the result that the program has reported. It is safe for concurrent use.
type outcome struct {
	// mu guards the fields below.
	mu   sync.Mutex
	done *event.Done // without the result; nil if steps are left
	// epoch is the epoch of the last session.
	epoch  uint64
	result Result
}

// report sets the result.
func (o *outcome) report(r Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result = r
}

// end sets the event for the end of a loop, or nil when a loop begins.
func (o *outcome) end(done *event.Done, epoch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done, o.epoch = done, epoch
}

// get returns the event for the end of the job, with its epoch; nil if steps are left.
func (o *outcome) get() (*event.Done, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done == nil {
		return nil, 0
	}
	done := *o.done
	// The result of the last Report before Close counts.
	done.Accuracy, done.Loss = o.result.Accuracy, o.result.Loss
	return &done, o.epoch
}
