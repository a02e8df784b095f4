package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
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
	// Closers are closed, in order, after the endpoint at the end of Close.
	Closers []io.Closer
}

// Group is a peer's membership in a job. A program trains with [Group.Steps], checks [Group.Err] and
// ends with [Group.Close]. [Group.Sessions] and [Group.Admin] are for packages below a program. All
// methods are safe for concurrent use, except that Steps and Err belong to one goroutine, which also
// owns the State.
type Group struct {
	cfg     Config
	onShort func() // set by Sessions.OnQuorumLost
	orders
	identity
	heldState
	sessions

	loops    loops         // the calls of Steps; owned by the goroutine of the body
	requests requestServer // of other peers
	outcome  outcome
	leftLog  sync.Once // the log has the leave of this peer
}

// Errors for a group or session that Join and Next did not make, and for a nil context.
var (
	errNoGroup   = errors.New("the group is nil, or was not made by Join")
	errNoSession = errors.New("the session is nil, or was not made by Next")
	errNoContext = errors.New("the context is nil")
)

// made reports whether Join made g. On a nil or zero Group, getters return zero values, calls
// without an error do nothing, and the other calls fail.
func (g *Group) made() bool { return g != nil && g.leaves != nil }

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
	g := &Group{cfg: cfg, orders: newOrders()}
	g.requests = requestServer{cfg: &g.cfg, identity: &g.identity, registration: &g.registration}
	g.advanced = func(step int64) { g.current().report.commit(step) }
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
	g.replace(d, nil)
	g.void, g.fresh = g.cfg.Peers == nil, g.cfg.Peers == nil
	g.runIDs = newRunIDs(&g.cfg)
	if g.cfg.Started != nil {
		g.cfg.Started(g)
	}
	g.cfg.Network.Serve(g.requests.answer)
	if len(g.cfg.Peers) < g.cfg.MinPeers {
		return nil // newcomers need the state, which does not exist before the first Next
	}
	g.pending, err = g.next(ctx, 0)
	return err
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

// Leave requests to leave the group at the next boundary between two steps. Err, and Sessions.Next,
// then return ErrLeft. Leave does not wait.
func (g *Group) Leave() {
	if !g.made() {
		return
	}
	g.orders.leave()
	g.current().leave(false)
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
	if g.donor != nil {
		g.donor.Close()
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
