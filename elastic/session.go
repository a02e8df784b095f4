package elastic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// Session is one epoch as its members see it: a fixed membership with a communicator. The
// communicator is revoked at every member on an error, and ends with the group.
type Session struct {
	View View
	Rank int // this peer's rank in View
	Comm *collective.Comm

	group   *Group
	driver  *driver
	entered time.Time // when the session was made
	once    sync.Once // guards retire

	// Owned by Next.
	calibrated bool              // the costs of calls are measured
	paths      map[ID]event.Path // the paths to other members, as last logged

	// For loops of Steps. The loop's goroutine owns division; collective calls read turn.
	division *division            // nil before the members have exchanged their speeds
	turn     atomic.Pointer[Turn] // the turn whose body runs; nil between turns
}

// Stale reports whether this member has received a later view, or is out of the group. Other
// members may get another result at the same time, so members leave a session only by a common
// decision, for example by Boundary.
func (s *Session) Stale() bool {
	if !s.made() {
		return false
	}
	now, _ := s.driver.status.now()
	return now.view.Epoch > s.View.Epoch || now.phase > inside
}

// Boundary decides, with the same result at all ranks, whether to leave the session for a later
// view. All ranks call it at the same place, between two steps. It costs one small AllReduce.
func (s *Session) Boundary(ctx context.Context) (bool, error) {
	if !s.made() {
		return false, fmt.Errorf("elastic: boundary: %w", errNoSession)
	}
	stale := []int32{0}
	if s.Stale() {
		stale[0] = 1
	}
	if err := collective.AllReduce(ctx, s.Comm, stale, stale, collective.Max[int32]); err != nil {
		return false, fmt.Errorf("elastic: boundary: %w", err)
	}
	return stale[0] != 0, nil
}

// Busy reports that this member is busy, see Group.Busy.
func (s *Session) Busy(what string) (done func()) {
	if !s.made() {
		return func() {}
	}
	return s.group.Busy(what)
}

// Retry is a part of a step that members computed who are gone, and that another member is about to
// compute again.
type Retry struct {
	Step    int64
	Samples []int // indices of the samples
	Of      []ID  // the members that are gone
}

// Retry is called before this member computes a part that members computed who are gone. It returns
// an error if the part must not be computed, because it has ended several processes in the same way;
// the text names the part and the cause. Otherwise the caller calls done when it has computed the
// part. Retry waits until it is known how the processes of the members have ended, if their launcher
// is the launcher of this member.
func (s *Session) Retry(ctx context.Context, r Retry) (done func(), err error) {
	if !s.made() || s.group.cfg.OnRetry == nil {
		return func() {}, nil
	}
	return s.group.cfg.OnRetry(ctx, r)
}

// made reports whether Next made s.
func (s *Session) made() bool { return s != nil && s.group != nil }

// enter connects the members of v and makes the session. It gives up if a later view arrives, or
// the group becomes too small.
func (g *Group) enter(ctx context.Context, d *driver, v View) (*Session, error) {
	d.report.enter(v.Epoch)
	ctx, cancel := d.status.while(ctx, func(s status) bool {
		return s.view.Epoch == v.Epoch && s.phase == inside && s.gap == nil && s.wrong == nil
	})
	defer cancel()
	rank := v.Rank(d.ep.Self.ID)
	d.loop.do(func() { d.entry.begin(v, time.Now()) })
	t, err := d.ep.Network.Connect(ctx, v, rank)
	d.loop.do(func() { d.entry.connected = true })
	if err != nil {
		return nil, fmt.Errorf("connect %v: %w", v, err)
	}
	s := &Session{View: v, Rank: rank, group: g, driver: d, entered: time.Now()}
	o := g.cfg.Comm
	o.OnStall = func(stall collective.Stall) { d.loop.do(func() { d.reportStall(v, stall) }) }
	o.Step = d.report.committed
	o.OnBegin, o.OnError, o.Sites = s.callBegins, s.callFailed, v.Sites()
	if o.Cost == (collective.Cost{}) {
		o.Cost = g.cost
	}
	s.Comm, err = collective.New(t, rank, len(v.Members), o)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	before := d.session.Load()
	d.enter(s)
	if now, _ := d.status.now(); now.view.Epoch != v.Epoch || now.phase != inside || now.gap != nil || now.wrong != nil {
		// Members that received the later view before they connected have not entered this session,
		// and the others would wait for them.
		s.Comm.Revoke(fmt.Errorf("epoch %d ended before this peer entered it", v.Epoch))
	}
	if p, ok := t.(Pather); ok {
		s.reportPaths(before, p)
	}
	return s, nil
}

// reportPaths logs the path to each other member with which there is a connection, unless the path
// is the same as in the session before. In a large group most paths do not change, and otherwise
// each view would cause an event for each pair. before is nil in the first session of this
// identity.
func (s *Session) reportPaths(before *Session, p Pather) {
	s.paths = make(map[ID]event.Path)
	for rank, m := range s.View.Members {
		if rank == s.Rank {
			continue
		}
		path := p.Path(rank)
		// A pair without a stream yet has no path.
		if path.Kind == "" {
			continue
		}
		path.Who = m.ID.Short()
		s.paths[m.ID] = path
		if before == nil || before.paths[m.ID] != path {
			s.driver.emit(s.View.Epoch, path)
		}
	}
}

// makeWayAfter is the shortest time for which the others wait for a live member before they ask it
// to step down. In a long call the time may be longer, because the communicator reports stalls at
// growing intervals.
const makeWayAfter = 30 * time.Second

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
		p := d.peerOf(id)
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
	d.emit(v.Epoch, event.Stall{Culprit: strings.Join(who, ","), Phase: phase, What: s.Name(), SinceMS: milliseconds(s.Since)})
}

// milliseconds returns a duration in milliseconds, as events show it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
