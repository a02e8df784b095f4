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
	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// Errors of Next, for errors.Is. All are ErrNoView as well.
var (
	// ErrNoView: there is no further session for this peer.
	ErrNoView = errors.New("no further view")
	// ErrLeft: this peer has left by its own wish.
	ErrLeft = fmt.Errorf("%w: left", ErrNoView)
	// ErrLast: this peer has left by its own wish, an ErrLeft, and it was the last member. What
	// the group has done is lost unless this peer saves it.
	ErrLast = fmt.Errorf("%w as the last member", ErrLeft)
	// ErrFenced: the group went on without this peer, whose state is void.
	ErrFenced = fmt.Errorf("%w: put out of the group", ErrNoView)
	// ErrQuorum: too few members were left for too long.
	ErrQuorum = fmt.Errorf("%w: too few peers", ErrNoView)
	// ErrRefused: the job does not want this peer.
	ErrRefused = fmt.Errorf("%w: refused", ErrNoView)
	// ErrSettings: members have registered different settings. All members get it.
	ErrSettings = fmt.Errorf("%w: peers differ", ErrNoView)
)

// Config says who this peer is, how it reaches the others, and when to go on.
type Config struct {
	// Endpoint is the first identity of this process.
	Endpoint
	// Peers are the members of the first view in rank order, Self among them; nil for a
	// peer that joins a running job.
	Peers []Member
	// Contacts returns members that a peer which joins may ask. It is called again and
	// again and may find more with time.
	Contacts func() []Member
	// Reopen makes a fresh identity after the present one was fenced, and its state with
	// it; nil makes being fenced final.
	Reopen func(ctx context.Context) (Endpoint, error)

	// Grants are those of the first view, the same at all members.
	Grants []Grant
	// Entry, if set, says by what right a peer joins that has proved itself to this member, or
	// why it may not, which the peer is told: for good, or for now where the error is ErrNotYet.
	// It must not block. Without it all may.
	Entry func(ID) (Entry, error)

	// Sole: as far as the launcher of this peer knows it has started all peers of the
	// job, and it reports their deaths by Group.Dead. The group takes note itself when
	// a peer of another launcher joins.
	Sole bool
	// Any lets any survivors go on, where otherwise a majority must agree.
	Any bool
	// MinPeers is the fewest members to go on with, or to begin with; 0 means 1.
	MinPeers int
	// RejoinTimeout is how long to wait for peers when too few are left; 0 means 10
	// minutes.
	RejoinTimeout time.Duration
	// StateRate limits the state that this peer hands to those who join, in bytes a
	// second; 0 means no limit.
	StateRate int
	// OnSuspect, if set, is told of a member that has been silent for long: a launcher
	// can look whether that is a process of its own which is stopped. It must not block.
	OnSuspect func(ID)
	// Inspect, if set, says what the process of a member of the same launcher does, which
	// has a Process. A member that is silent while it is busy is not suspected. It must not
	// block.
	Inspect func(Member) ProcessState
	// Started, if set, is called by Join before it waits for the other members, with the
	// group that it will return: Leave and Dead may be called from then on.
	Started func(*Group)

	Sink   event.Sink // nil discards
	Comm   collective.Options
	shared *shared // with other members of this process; nil for none
	// Closers are closed in order after the endpoint at the end of Close.
	Closers []io.Closer
}

// Group is a peer's membership in a job.
type Group struct {
	cfg      Config
	state    State
	settings []Setting
	donor    *transfer.Donor // of state
	onShort  func()          // of OnQuorumLost
	retiring sync.WaitGroup  // sessions that were left
	leaves   chan struct{}   // closed by Leave
	leaving  sync.Once
	told     chan error // why there is nobody to join, of the launcher

	// The goroutine of Next owns these.
	pending *Session        // entered by Join, for the first Next
	cost    collective.Cost // of the calls of the session before; zero at first
	broke   int             // sessions that broke one after the other
	updates int64           // step of which State has an update: that committed here last
	void    bool            // State is not that of the job: it must be copied
	fresh   bool            // this identity has joined, and was in no session yet
	torn    bool            // State is undefined: a Load has failed
	levels  bool            // it was in a session in which all were level
	loops   loops           // of Steps
	loopErr error           // of Err

	mu     sync.Mutex
	closed bool
	begun  bool     // Next was called: state and settings are what they will be
	met    []Member // members that an identity before knew, for the next one to ask
	keeper *keeper  // of the present identity
	last   *Session
	// Of the last loop of Steps, if it came to its end.
	finished *event.Done
	result   Result
}

// Errors of a group or session that Join and Next did not make, and of a nil context.
var (
	errNoGroup   = errors.New("the group is nil, or was not made by Join")
	errNoSession = errors.New("the session is nil, or was not made by Next")
	errNoContext = errors.New("the context is nil")
)

// made reports whether Join made g. Of another one getters are zero, calls without an error
// do nothing, and the others fail.
func (g *Group) made() bool { return g != nil && g.leaves != nil }

// Join makes this peer a member of the job. In the first view it returns when all of it
// have agreed and are connected, or with ctx's end; a peer that joins a running job is
// let in by its first Next. On an error the closers have been closed.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Sink == nil {
		cfg.Sink = event.Discard{}
	}
	cfg.MinPeers = max(cfg.MinPeers, 1)
	if cfg.RejoinTimeout == 0 {
		cfg.RejoinTimeout = DefaultRejoinTimeout
	}
	g := &Group{cfg: cfg, leaves: make(chan struct{}), told: make(chan error, 1)}
	err := errNoContext
	if ctx != nil {
		err = g.join(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("elastic: join: %w", err), g.Close())
	}
	return g, nil
}

// DefaultRejoinTimeout is how long a group waits for peers when too few are left.
const DefaultRejoinTimeout = 10 * time.Minute

// join starts the keeper and enters the first view.
func (g *Group) join(ctx context.Context) error {
	if g.cfg.Network == nil {
		return errors.New("the Endpoint has no Network")
	}
	if g.cfg.Peers == nil && g.cfg.Contacts == nil {
		return errors.New("neither a first view nor members to ask")
	}
	for i, m := range g.cfg.Peers {
		if m.ID == "" || slices.IndexFunc(g.cfg.Peers, func(o Member) bool { return o.ID == m.ID }) != i {
			return fmt.Errorf("member %d of the first view: ID %q is empty or stands twice", i, m.ID)
		}
	}
	k, err := newKeeper(&g.cfg, g.cfg.Endpoint, g.cfg.Peers, g.emitter(g.cfg.Self))
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.keeper = k
	g.mu.Unlock()
	g.void, g.fresh = g.cfg.Peers == nil, g.cfg.Peers == nil
	if g.cfg.Started != nil {
		g.cfg.Started(g)
	}
	g.cfg.Network.Serve(g.answer)
	if len(g.cfg.Peers) < g.cfg.MinPeers {
		return nil // those who are to come need the state, which is there at the first Next
	}
	g.pending, err = g.next(ctx, 0)
	return err
}

// Hold registers the state that all members hold alike, and the settings in which they
// must agree. It comes before the first Next, at every member or at none.
func (g *Group) Hold(s State, settings []Setting) {
	if !g.made() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state, g.settings = s, settings; s != nil {
		g.donor = g.newDonor()
	}
}

// OnQuorumLost lets Next call f when it begins to wait because too few members are
// left. It comes before the first Next.
func (g *Group) OnQuorumLost(f func()) {
	if g.made() {
		g.onShort = f
	}
}

// Committed says that the state has committed a step; it comes after each one, from
// the goroutine that calls Next. Where a peer joins, this copies the state or the update
// of the step for it; an error is that of State. Without a State, see Hold, it is an error.
func (g *Group) Committed(step int64) error {
	if !g.made() {
		return fmt.Errorf("elastic: step %d: %w", step, errNoGroup)
	}
	if g.state == nil {
		return fmt.Errorf("elastic: step %d: no state is held; call Hold before the first Next", step)
	}
	g.broke, g.updates = 0, step
	g.progress(step)
	if err := g.offerStep(); err != nil {
		return fmt.Errorf("elastic: step %d: %w", step, err)
	}
	return nil
}

// progress lets the others know how far this member is.
func (g *Group) progress(step int64) {
	k := g.current()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doing.Step = uint64(max(step, 0))
}

// Stable says up to which step all members are known to have committed.
func (g *Group) Stable(step int64) {
	if g.made() {
		g.current().stable.Store(step)
	}
}

// Busy says that this member makes no progress for a known reason, until done is
// called. Stalls that it causes are reported with the reason, and it is not asked to
// make way.
func (g *Group) Busy(what string) (done func()) {
	if !g.made() {
		return func() {}
	}
	k := g.current()
	set := func(what string) {
		k.mu.Lock()
		k.doing.Busy = what
		k.mu.Unlock()
	}
	set(what)
	return func() { set("") }
}

// Leave asks to leave the group at the next boundary. Next returns ErrLeft then.
func (g *Group) Leave() {
	if !g.made() {
		return
	}
	g.leaving.Do(func() { close(g.leaves) })
	g.current().leave(false)
}

// Dead says that the process of a member has ended: its launcher has its wait status.
func (g *Group) Dead(id ID) {
	if g.made() {
		g.current().dead(id)
	}
}

// current returns the keeper of the present identity.
func (g *Group) current() *keeper {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keeper
}

// Heard returns how long ago this peer has heard the members that it watches: all in a small group,
// some in a large one.
func (g *Group) Heard() map[ID]time.Duration {
	out := make(map[ID]time.Duration)
	if !g.made() {
		return out
	}
	k := g.current()
	if k == nil {
		return out
	}
	done := make(chan struct{})
	k.do(func() {
		defer close(done)
		for _, id := range k.watched() {
			if p := k.peerOf(id); p != nil && p.spoke {
				out[id] = max(0, time.Since(p.last))
			}
		}
	})
	select {
	case <-done:
		return out
	case <-k.ctx.Done():
		return make(map[ID]time.Duration) // out may be being written
	}
}

// Self returns this peer, as the group knows it at present.
func (g *Group) Self() Member {
	if !g.made() {
		return Member{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keeper == nil {
		return g.cfg.Self
	}
	return g.keeper.ep.Self
}

// Emit writes an event of this peer to the job's log. epoch and step are 0 where
// they do not apply.
func (g *Group) Emit(epoch uint64, step int64, body event.Body) {
	if !g.made() {
		return
	}
	self := g.Self()
	g.cfg.Sink.Emit(event.Event{Time: time.Now(), Peer: self.ID.Short(), Index: self.Index,
		Epoch: epoch, Step: step, Body: body})
}

// emitter returns what writes the events of an identity.
func (g *Group) emitter(self Member) func(uint64, event.Body) {
	return func(epoch uint64, body event.Body) {
		g.cfg.Sink.Emit(event.Event{Time: time.Now(), Peer: self.ID.Short(), Index: self.Index, Epoch: epoch, Body: body})
	}
}

// closePatience is how long Close waits for the others to agree that this peer leaves.
const closePatience = time.Second

// Close tells the result of a loop of Steps that has come to its end (see Report), leaves the group, by agreement if that takes no longer than a second, ends the
// session and waits for what the group started. Members that still wait for this one
// get an error; so programs close when they have made the same last call. Closing
// again does nothing, nor does Close of nil.
func (g *Group) Close() error {
	if !g.made() {
		return nil
	}
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	k, last := g.keeper, g.last
	g.mu.Unlock()
	if !first {
		return nil
	}
	g.tellDone()
	var errs []error
	if k != nil {
		k.depart(closePatience)
		g.retire(last, nil)
		g.retiring.Wait()
		k.stop()
	}
	if g.donor != nil {
		g.donor.Close()
	}
	ep := g.cfg.Endpoint
	if k != nil {
		ep = k.ep
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
