package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// Session is one epoch as its members see it. Its communicator ends with an error
// at every member, or with the group.
type Session struct {
	View View
	Rank int // of this peer in View
	Comm *collective.Comm

	group   *Group
	keeper  *keeper
	entered time.Time
	once    sync.Once // for retire

	calibrated bool // owned by Next

	// Of a loop of Steps: its goroutine owns division, and calls look at turn.
	division *division            // nil before the members have entered it
	turn     atomic.Pointer[Turn] // whose body runs; nil between two of them
}

// Stale reports whether a later view exists. That is local knowledge: members leave a
// session only by a decision that they have in common, as Boundary makes.
func (s *Session) Stale() bool {
	if !s.made() {
		return false
	}
	now, _ := s.keeper.now()
	return now.view.Epoch > s.View.Epoch || now.phase > inside
}

// Boundary decides together with all ranks whether to leave the session for a later
// view; all call it at the same place, between two steps. It costs one small
// AllReduce.
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

// Busy is Group.Busy.
func (s *Session) Busy(what string) (done func()) {
	if !s.made() {
		return func() {}
	}
	return s.group.Busy(what)
}

// made reports whether Next made s.
func (s *Session) made() bool { return s != nil && s.group != nil }

// enter connects the members of v and makes the session. It gives up when a later
// view comes, or the group becomes too small.
func (g *Group) enter(ctx context.Context, k *keeper, v View) (*Session, error) {
	k.mu.Lock()
	k.doing.Entered = v.Epoch
	k.mu.Unlock()
	ctx, cancel := k.while(ctx, func(s standing) bool {
		return s.view.Epoch == v.Epoch && s.phase == inside && s.short == nil && s.wrong == nil
	})
	defer cancel()
	slow := time.AfterFunc(slowEntry, func() { k.do(func() { k.reportAbsent(v) }) })
	defer slow.Stop()
	rank := v.Rank(k.ep.Self.ID)
	t, err := k.ep.Network.Connect(ctx, v, rank)
	if err != nil {
		return nil, fmt.Errorf("connect %v: %w", v, err)
	}
	s := &Session{View: v, Rank: rank, group: g, keeper: k, entered: time.Now()}
	o := g.cfg.Comm
	o.OnStall = func(stall collective.Stall) { k.do(func() { k.reportStall(v, stall) }) }
	o.Step = k.committed
	o.OnBegin, o.OnError, o.Sites = s.callBegins, s.callFailed, v.Sites()
	if o.Cost == (collective.Cost{}) {
		o.Cost = g.cost
	}
	s.Comm, err = collective.New(t, rank, len(v.Members), o)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	k.enter(s)
	if now, _ := k.now(); now.view.Epoch != v.Epoch || now.phase != inside || now.short != nil {
		// Those who saw this before they were connected have not entered.
		s.Comm.Revoke(fmt.Errorf("epoch %d was over before it began", v.Epoch))
	}
	if p, ok := t.(Pather); ok {
		reportPaths(k, v, rank, p)
	}
	return s, nil
}

// slowEntry is how long the members may take to enter a session before those who are
// missing are named.
const slowEntry = 1500 * time.Millisecond

// reportPaths writes how each other member is reached.
func reportPaths(k *keeper, v View, self int, p Pather) {
	for rank, m := range v.Members {
		if rank != self {
			path := p.Path(rank)
			path.Who = m.ID.Short()
			k.emit(v.Epoch, path)
		}
	}
}

// retire closes a session that was left, in the background, as what it waits for is
// only that others take note. ended, if not nil, is called when they have, or when the session
// was retired before.
func (g *Group) retire(s *Session, ended func()) {
	if s == nil {
		return
	}
	first := false
	defer func() {
		if !first && ended != nil {
			ended()
		}
	}()
	s.once.Do(func() {
		first = true
		end := func() {
			_ = s.Comm.Close() // the loss of those who had to take note
			if ended != nil {
				ended()
			}
		}
		g.mu.Lock()
		background := !g.closed
		if background {
			g.retiring.Go(end)
		}
		g.mu.Unlock()
		if !background {
			end()
		}
	})
}

// reportAbsent names the members of v that have not come to enter its session.
func (k *keeper) reportAbsent(v View) {
	var who []string
	phase := "not in the session"
	for _, m := range v.Members {
		p := k.peers[m.ID]
		if p == nil || p.beat.Entered >= v.Epoch {
			continue // itself, or of a large group one of which nothing is known
		}
		who = append(who, m.ID.Short())
		if p.beat.Busy != "" {
			phase = p.beat.Busy
		}
	}
	if len(who) > 0 {
		k.emit(v.Epoch, event.Stall{Culprit: strings.Join(who, ","), Phase: phase,
			What: fmt.Sprintf("enter epoch %d", v.Epoch), SinceMS: milliseconds(slowEntry)})
	}
}

// makeWayAfter is how long a member that lives may hold up a call, at least, before it
// is asked to make way; a long call has longer, as the watch of the communicator
// reports at ever longer intervals.
const makeWayAfter = 30 * time.Second

// committed returns the last step that this member has committed.
func (k *keeper) committed() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(k.doing.Step)
}

// reportStall writes down a stall of the communicator of v. A single culprit that lives
// and does not say what it does is asked to make way in the end.
func (k *keeper) reportStall(v View, s collective.Stall) {
	var who []string
	phase := s.Phase
	for _, rank := range s.Culprits {
		id := v.Members[rank].ID
		who = append(who, id.Short())
		p := k.peerOf(id)
		if p == nil {
			continue
		}
		if p.beat.Busy != "" {
			phase = p.beat.Busy
			continue
		}
		if len(s.Culprits) > 1 {
			continue
		}
		p.blamed = time.Now()
		if s.Quiet >= makeWayAfter {
			k.out.send(id, yield{Epoch: v.Epoch}.append(nil))
		}
	}
	k.emit(v.Epoch, event.Stall{Culprit: strings.Join(who, ","), Phase: phase, What: s.What(), SinceMS: milliseconds(s.Since)})
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func short(members []Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.ID.Short())
	}
	return out
}

func shortIDs(ids []ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.Short())
	}
	return out
}

// without returns the members but the one with that ID.
func without(members []Member, id ID) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.ID == id })
}
