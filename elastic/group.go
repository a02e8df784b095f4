package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/event"
)

// ErrNoView: the group has ended, or lost a member and cannot go on without it.
var ErrNoView = errors.New("no further view")

// Config says who this peer is and how it reaches the others.
type Config struct {
	Self      Member
	Peers     []Member // of the first view in rank order, Self among them
	Control   Control
	Connector Connector
	Sink      event.Sink // nil discards
	Comm      collective.Options
	// Closers are closed in order at the end of Close, when the group has left: the
	// network, whose end must close Control's Events, comes among them.
	Closers []io.Closer
}

// Group is a peer's membership in a job.
type Group struct {
	cfg     Config
	session *Session
	reading sync.WaitGroup // the reader of Control's events

	mu     sync.Mutex
	closed bool
	lost   bool // the loss of a member has been reported
}

// Session is one epoch as its members see it. Its communicator ends with an error
// at every member, or with the group.
type Session struct {
	View View
	Rank int // of this peer in View
	Comm *collective.Comm
}

// Join makes this peer a member of the job: it returns when all members of the first
// view have agreed on it and are connected, or with ctx's end. On an error the
// closers have been closed.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Sink == nil {
		cfg.Sink = event.Discard{}
	}
	g := &Group{cfg: cfg}
	view, err := firstView(cfg)
	if err == nil {
		err = g.agree(ctx, view)
	}
	if err == nil {
		err = g.enter(ctx, view)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("elastic: join: %w", err), g.Close())
	}
	return g, nil
}

// firstView makes the view that the launcher named.
func firstView(cfg Config) (View, error) {
	v := View{Epoch: 1, Members: slices.Clone(cfg.Peers)}
	for i, m := range v.Members {
		if m.ID == "" || v.Rank(m.ID) != i {
			return View{}, fmt.Errorf("member %d of the first view: ID %q is empty or stands twice", i, m.ID)
		}
		v.Voters = append(v.Voters, m.ID)
	}
	if v.Rank(cfg.Self.ID) < 0 {
		return View{}, fmt.Errorf("this peer, %s, is not among the %d members of the first view", cfg.Self.ID, len(v.Members))
	}
	return v, nil
}

// enter connects the members and begins the session.
func (g *Group) enter(ctx context.Context, v View) error {
	rank := v.Rank(g.cfg.Self.ID)
	t, err := g.cfg.Connector.Connect(ctx, v, rank)
	if err != nil {
		return fmt.Errorf("connect %v: %w", v, err)
	}
	o := g.cfg.Comm
	o.OnStall = func(s collective.Stall) { g.Emit(v.Epoch, 0, stallOf(v, s)) }
	comm, err := collective.New(t, rank, len(v.Members), o)
	if err != nil {
		return errors.Join(err, t.Close())
	}
	g.session = &Session{View: v, Rank: rank, Comm: comm}
	g.Emit(v.Epoch, 0, event.View{Members: short(v.Members), Voters: shortIDs(v.Voters), Reason: "start"})
	if p, ok := t.(Pather); ok {
		g.reportPaths(v, rank, p)
	}
	return nil
}

// reportPaths writes how each other member is reached.
func (g *Group) reportPaths(v View, self int, p Pather) {
	for rank, m := range v.Members {
		if rank != self {
			path := p.Path(rank)
			path.Who = m.ID.Short()
			g.Emit(v.Epoch, 0, path)
		}
	}
}

// Next returns the session of the first view after epoch, 0 at the start. Where there
// is none and can be none it returns ErrNoView with the reason.
func (g *Group) Next(ctx context.Context, epoch uint64) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("elastic: next view after epoch %d: %w", epoch, context.Cause(ctx))
	}
	s := g.session
	if epoch < s.View.Epoch {
		return s, nil
	}
	cause := s.Comm.Err()
	if cause == nil {
		return nil, fmt.Errorf("elastic: next view after epoch %d: %w", epoch, ErrNoView)
	}
	g.reportLoss(cause)
	return nil, fmt.Errorf("elastic: next view after epoch %d: %w: %w", epoch, ErrNoView, cause)
}

// reportLoss writes one lost event if the session ended with a peer's loss.
func (g *Group) reportLoss(cause error) {
	var p *collective.PeerError
	if !errors.As(cause, &p) || p.Rank < 0 || p.Rank >= len(g.session.View.Members) {
		return
	}
	g.mu.Lock()
	first := !g.lost
	g.lost = true
	g.mu.Unlock()
	if first {
		v := g.session.View
		g.Emit(v.Epoch, 0, event.Lost{Who: v.Members[p.Rank].ID.Short(), Cause: lossCause(p.Cause)})
	}
}

// lossCause maps a transport's words to those of the event log.
func lossCause(cause string) string {
	if strings.Contains(cause, "closed") {
		return "exit"
	}
	return "reset"
}

// stallOf puts a stall of the communicator of v into the words of the log.
func stallOf(v View, s collective.Stall) event.Stall {
	var who []string
	for _, rank := range s.Culprits {
		who = append(who, v.Members[rank].ID.Short())
	}
	return event.Stall{Culprit: strings.Join(who, ","), Phase: s.Phase, What: s.Call.String(),
		SinceMS: float64(s.Since) / float64(time.Millisecond)}
}

// Self returns this peer.
func (g *Group) Self() Member { return g.cfg.Self }

// Emit writes an event of this peer to the job's log. epoch and step are 0 where
// they do not apply.
func (g *Group) Emit(epoch uint64, step int64, body event.Body) {
	g.cfg.Sink.Emit(event.Event{Time: time.Now(), Peer: g.cfg.Self.ID.Short(), Index: g.cfg.Self.Index,
		Epoch: epoch, Step: step, Body: body})
}

// Close leaves the group, ends the session and waits for what the group started.
// Members that still wait for this one get an error; so programs close when they
// have made the same last call. Closing again does nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if !first {
		return nil
	}
	var errs []error
	if g.session != nil {
		g.reportLoss(g.session.Comm.Err())
		errs = append(errs, g.session.Comm.Close())
	}
	for _, c := range g.cfg.Closers {
		errs = append(errs, c.Close())
	}
	g.reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("elastic: close: %w", err)
	}
	return nil
}

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
