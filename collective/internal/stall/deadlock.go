package stall

import (
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Anchor is a rank that is blocked in a wait, and to which firm waits lead. A wait of rank A for
// rank B is firm if A's call cannot end before B's. So if an anchor comes back to its rank, and the
// rank is still in the same wait, the waits are a deadlock, however old the knowledge of the other
// ranks was.
type Anchor struct {
	Rank  int32         // -1 for none
	Since time.Duration // Wait.Since of its wait, by its own clock; together with Rank it identifies the wait
	Hops  int32         // number of waits that lead to it
	// Whole is set if no rank can end the collective call about which was asked before the call of
	// the anchor ends, because a rank that waits for the anchor has not begun the collective call.
	Whole bool
}

// noAnchor returns the Anchor that means none.
func noAnchor() Anchor { return Anchor{Rank: -1} }

// isWait reports whether two anchors are the same wait of the same rank.
func (a Anchor) isWait(b Anchor) bool { return a.Rank >= 0 && a.Rank == b.Rank && a.Since == b.Since }

// isPoint reports whether w is a Send or Recv.
func (w *Wait) isPoint() bool { return w.Call.Kind == transport.KindPoint }

// provesWhole reports whether a tell about a collective call proves that no rank can end the call
// before the call that blocks the anchor ends. No rank returns from a collective call before all
// ranks have begun it.
func (s *Signal) provesWhole() bool {
	return s.State == NotYet || s.State == Closed || s.State == Present && s.End.Anchor.Whole
}

// IsDeadlock reports whether w can never end: firm waits lead from w back to w. Only one rank of a
// cycle of waits finds that, its anchor.
func (c *Chase) IsDeadlock(w *Wait) bool {
	return w.Blocking && c.reached(w).isWait(Anchor{Rank: int32(c.Self), Since: w.Since})
}

// reached returns the lowest anchor to which the firm edges of w lead.
func (c *Chase) reached(w *Wait) Anchor {
	out := noAnchor()
	for _, rank := range w.For {
		a := w.answers[rank]
		if a == nil || !a.firm || a.since != w.Since || int(a.end.Anchor.Hops) >= c.Ranks {
			continue
		}
		next := a.end.Anchor
		next.Hops, next.Whole = next.Hops+1, !w.isPoint()
		if next.Rank >= 0 && (out.Rank < 0 || next.Rank < out.Rank) {
			out = next
		}
	}
	return out
}

// anchor returns the anchor that a rank at position p tells an asker. The asker waits for this
// rank's own wait only if this rank has not begun the call: within one call a rank can wait, and
// still send what another rank of the call waits for.
func (c *Chase) anchor(p Position, now time.Duration) Anchor {
	w := p.Wait
	if p.Free || w == nil || !w.Blocking || now-w.Since < AskAfter {
		return noAnchor()
	}
	out := c.reached(w)
	if p.State == Present {
		if !out.Whole {
			return noAnchor()
		}
		return out
	}
	if out.Rank < 0 || out.Rank >= int32(c.Self) {
		out = Anchor{Rank: int32(c.Self), Since: w.Since}
	}
	out.Whole = false
	return out
}

// Waiting describes the wait of one rank of a deadlock.
type Waiting struct {
	Rank  int
	Call  transport.Envelope
	Sends bool
}

// maxNamed is the number of ranks of a deadlock whose calls are named.
const maxNamed = 8

// Named returns the ranks of a deadlock whose calls are named, in the order of their waits.
func (e *End) Named() []int {
	ring := e.cycle()
	return ring[:min(len(ring), maxNamed)]
}

// Deadlock returns the calls of the ranks that are named, for a wait that is proven to be in a
// deadlock. It returns nil as long as some of these ranks have not told their calls.
func (c *Chase) Deadlock(w *Wait, sends bool, now time.Duration) (all []Waiting) {
	e := c.End(w, now)
	if e.Cause != Deadlock || !c.IsDeadlock(w) {
		return nil
	}
	for _, rank := range e.Named() {
		if rank == c.Self {
			all = append(all, Waiting{rank, w.Envelope, sends})
			continue
		}
		a := w.answers[rank]
		if a == nil || a.tell.Blocker.Call.Kind == 0 {
			return nil
		}
		all = append(all, Waiting{rank, a.tell.Blocker, a.tell.Sends})
	}
	return all
}
