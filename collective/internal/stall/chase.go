// Package stall detects stalled calls: it finds the rank that blocks a call, and computes the time
// from which a wait is unusually long. It does no input or output and has no clock: times come from
// the caller, as durations since one origin, and signals go to the caller. The watchdog of a rank
// owns the state; nothing here is safe for concurrent use.
//
// # Finding the cause
//
// The ranks that wait for messages of other ranks form the waits-for graph. Chase follows its edges
// (edge chasing: Chandy, Misra, Haas 1983), and no rank needs to know the whole graph. A rank asks
// only the ranks for which it waits. An asked rank answers with its knowledge of the end of its own
// chain of waits, and later reports changes of that end, the news, to its askers. So each rank asks
// only a few ranks, whatever the number of ranks. When the end of a chain becomes known, it is sent
// to all ranks of the chain:
//
//	Ask:  0 -> 1 -> 2 -> 3    0 waits for 1, 1 for 2, 2 for 3
//	Tell: 0 <- 1 <- 2 <- 3    3 is not in the call
//
// A rank that both receives and sends waits for two ranks. Both chains are followed, and the end
// whose Cause has the higher value is used. If a connection is slow, the waiting ranks also ask
// directly the two ends of the connection and the rank at the end of the chain: the direct answers
// show which end is slow, while an answer over the slow connection would be out of date.
//
// # Invariants
//
// Waits and signals change all the time, so the knowledge of a rank can be old.
//
//   - A cycle of waits is a deadlock only if every wait in it is firm: the caller of RecordTell
//     decides, from what this rank has received, whether the awaited rank can let the call end
//     before its own call ends. The time of a wait proves nothing: a message may be in flight.
//   - The waits of a cycle must be firm at one moment. Each rank passes on the lowest rank to which
//     firm waits lead, its Anchor. The anchor that comes back to its rank proves the deadlock, if
//     that rank has been in the same wait all the time.
//   - Old information could circulate in a cycle for ever. Therefore hops are counted, and
//     information with more hops than there are ranks is discarded.
//   - Where ranks wait for several others, a tell can cause more than one other. Therefore a rank
//     tells little news for each ask, and the rest periodically.
//
// # The limit
//
// Limit is the adaptive timeout: a decaying maximum of recent waits, with a lower bound of
// After.
package stall

import (
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

const (
	// relayAfter is the minimum age of a rank's last ask for the rank to ask again when another
	// rank asks it.
	relayAfter = 100 * time.Millisecond
	// forgetAfter is the time after its ask for which an asker gets news.
	forgetAfter = 3 * time.Second
	// maxNews is the number of tells of news for one ask, without the periodic ones. Where waits form
	// cycles, a tell can cause several others, and these in turn.
	maxNews = 16
)

// Wait is a call in progress at this rank, seen as edges of the waits-for graph. The watchdog sets
// the exported fields; the chase owns the other fields.
type Wait struct {
	transport.Envelope
	For      []int         // the call waits for all these ranks, to receive or to send
	Since    time.Duration // time of the last message that the call sent or received
	Blocking bool          // the caller waits for the end of the call and does nothing else
	// Oldest is the wait of the oldest call that blocks this rank; nil if there is no such call, or
	// if it is this call.
	Oldest *Wait

	// asked is the time of this rank's last ask for the call, and wanted the time of the last ask
	// of another rank for it; 0 means never.
	asked, wanted time.Duration
	answers       map[int]*answer // by rank; an asked rank has an entry
}

// answer holds the last tell of one rank for a wait.
type answer struct {
	told  bool // a tell has arrived; only then state and end are set
	state State
	end   End
	since time.Duration // the value of Wait.Since to which firm belongs
	firm  bool          // the wait for the rank is firm
	tell  Signal        // the last tell
}

// Waits reports whether w waits for another rank, to receive or to send.
func (w *Wait) Waits() bool { return len(w.For) > 0 }

// Wanted reports whether another rank has asked for w within forgetAfter.
func (w *Wait) Wanted(now time.Duration) bool { return w.wanted > 0 && now-w.wanted < forgetAfter }

// Asked returns the time of the last Ask for w, 0 for never.
func (w *Wait) Asked() time.Duration { return w.asked }

// HasAsked reports whether this rank has asked a rank for w.
func (w *Wait) HasAsked(rank int) bool { return w.answers[rank] != nil }

// Forget resets the state of the chase for w.
func (w *Wait) Forget() { w.asked, w.wanted, w.answers = 0, 0, nil }

// Position is the position of this rank in relation to a call about which another rank asked.
type Position struct {
	State State
	Busy  bool  // in another call
	Wait  *Wait // the wait that blocks this rank, in that call or in another one; nil for none
	Sends bool  // Wait is a Send
	Full  bool  // see Signal
	// Free is set if this rank may carry out what the asker waits for although it is blocked in
	// Wait, for example by a call in the background.
	Free bool
}

// Chase is one rank's knowledge of the waits-for graph. The zero value with the exported
// fields set is ready. It is not safe for concurrent use.
type Chase struct {
	Self  int                     // rank of the transport
	Ranks int                     // number of ranks of the transport
	Send  func(to int, s *Signal) // sends a signal to a rank

	// contacts holds the response times of the asked ranks.
	contacts map[int]*contact
	// askers holds the ranks that have asked this rank within forgetAfter.
	askers map[asker]*askRecord
}

// asker is a rank and the call about which it asked. A rank may ask about several calls.
type asker struct {
	rank int
	comm uint64
	seq  uint32
}

// askRecord is the last ask of an asker, and the content of the last tell to it.
type askRecord struct {
	ask   Signal
	at    time.Duration // when the ask arrived
	news  int           // number of tells of news since, without the periodic ones
	state State
	end   End
	// via is the wait from which this rank computed end; nil for none.
	via *Wait
}

// Reset forgets the response times of other ranks. The watchdog calls it when no call waits,
// because these times say nothing about the next stall.
func (c *Chase) Reset() { clear(c.contacts) }

// contact returns the contact of a rank, and creates it if necessary.
func (c *Chase) contact(rank int) *contact {
	if c.contacts == nil {
		c.contacts = make(map[int]*contact)
	}
	if c.contacts[rank] == nil {
		c.contacts[rank] = new(contact)
	}
	return c.contacts[rank]
}

// targets returns the ranks to ask for w: the ranks for which w waits, and, if the chain ends at a
// silent rank or has a slow link, also the two ends of the slowest link and the rank at the end of
// the chain. If w is proven to be in a deadlock, they include the ranks whose calls are named.
func (c *Chase) targets(w *Wait, now time.Duration) []int {
	var all []int
	add := func(rank int) {
		if rank >= 0 && rank != c.Self && !slices.Contains(all, rank) {
			all = append(all, rank)
		}
	}
	for _, rank := range w.For {
		add(rank)
	}
	e := c.End(w, now)
	if e.Cause == Deadlock && c.IsDeadlock(w) {
		for _, rank := range e.Named() {
			add(rank)
		}
	}
	if e.Cause == Silent || e.Slow.ResponseTime >= slowAfter {
		add(int(e.Slow.From))
		add(int(e.Slow.To))
		add(int(e.Rank))
	}
	return all
}

// Ask sends an ask to each rank for which w waits, and to the ends of a slow or silent chain. It
// costs up to five signals. Signals may be lost, so the caller asks again periodically.
func (c *Chase) Ask(w *Wait, now time.Duration) {
	if w.answers == nil {
		w.answers = make(map[int]*answer)
	}
	w.asked = now
	for _, rank := range c.targets(w, now) {
		if w.answers[rank] == nil {
			w.answers[rank] = new(answer)
		}
		c.contact(rank).ask(now)
		c.Send(rank, &Signal{Kind: Ask, Envelope: w.Envelope, At: now, End: End{Slow: noLink(), Anchor: noAnchor()}})
	}
}

// HasUnasked reports whether this rank has not yet asked one of the targets of w.
func (c *Chase) HasUnasked(w *Wait, now time.Duration) bool {
	return slices.ContainsFunc(c.targets(w, now), func(rank int) bool { return w.answers[rank] == nil })
}

// Settled reports whether a report would be final: each target has answered or has been silent for
// long enough, and the end of the chain is known. If another rank reports that the rank at the end
// is silent, this rank must have its own evidence. Either the reported rank does not answer this
// rank either, or it does answer, and then the link is slow.
func (c *Chase) Settled(w *Wait, now time.Duration) bool {
	for _, rank := range c.targets(w, now) {
		if w.answers[rank] == nil || !c.contact(rank).settled(now) {
			return false
		}
	}
	e := c.End(w, now)
	return e.Cause != Unknown && (e.Cause != Silent || c.hasAnswered(int(e.Rank)) || c.confirms(int(e.Rank), now))
}

// RecordTell records a tell of rank from for w, which is nil if the call is over. firm is used only
// for a Send or Recv: it reports whether the tell proves that w is firm for that rank (see Anchor).
// A tell that answers an ask carries the time of that ask by this rank's clock, so no clocks are
// compared. A tell without a time is news: it answers no ask, and says nothing about the response
// time.
func (c *Chase) RecordTell(from int, s *Signal, w *Wait, firm bool, now time.Duration) {
	timed := s.At > 0
	if ct := c.contacts[from]; ct != nil && timed {
		ct.tell(s.At, now)
	}
	if w == nil || w.answers[from] == nil {
		return
	}
	a := w.answers[from]
	// News of a Send or Recv only confirms what an answer has proven.
	firm = firm && (timed || a.firm && a.since == w.Since)
	if !w.isPoint() {
		firm = s.provesWhole()
	}
	a.told, a.state, a.end, a.since, a.firm, a.tell = true, s.State, s.End, w.Since, firm, *s
}

// End returns this rank's knowledge of the end of the chain of waits that begins with w. Of the two
// chains of a wait it returns the end whose Cause has the higher value, with the slowest link of
// both chains.
func (c *Chase) End(w *Wait, now time.Duration) End {
	out := End{Rank: int32(c.Self), Slow: noLink()}
	for i, rank := range w.For {
		if rank < 0 || rank == c.Self || i > 0 && rank == w.For[0] {
			continue
		}
		e := c.chainEnd(w, rank, now)
		slow := out.Slow.slower(e.Slow)
		if out.Hops == 0 || e.Cause > out.Cause {
			out = e
		}
		out.Slow = slow
	}
	return out
}

// chainEnd returns the end of the chain that begins with the edge from w to a rank: the end that
// the awaited rank has reported, with one more hop.
func (c *Chase) chainEnd(w *Wait, rank int, now time.Duration) End {
	e := End{Cause: Unknown, Rank: int32(rank), Hops: 1, Slow: noLink(), Path: []int32{int32(rank)}}
	ct, a := c.contacts[rank], w.answers[rank]
	if ct != nil && ct.responseTime(now) > 0 {
		e.Slow = Link{int32(c.Self), int32(rank), ct.responseTime(now)}
	}
	switch {
	case ct != nil && ct.silent(now):
		e.Cause = Silent
		return e
	case a == nil || !a.told:
		return e
	}
	e.Cause, e.Rank, e.Hops, e.Slow = a.end.Cause, a.end.Rank, a.end.Hops+1, e.Slow.slower(a.end.Slow)
	if e.Cause == Unknown {
		e.Rank = int32(rank)
	}
	e.Path = append(e.Path, a.end.Path...)
	if cycle := slices.Index(e.Path, int32(c.Self)); cycle >= 0 {
		return c.cycleEnd(e, w, cycle+1, now)
	}
	if int(e.Hops) > c.Ranks { // the information circulates
		return End{Rank: int32(rank), Slow: e.Slow, Hops: 1, Path: e.Path[:1]}
	}
	return e
}

// cycleEnd returns the end of a chain that leads back to this rank after a number of waits. The
// anchor of the cycle knows whether it is a deadlock, and tells the others.
func (c *Chase) cycleEnd(e End, w *Wait, waits int, now time.Duration) End {
	// This rank is blocked by its oldest call, so the cycle goes through that call and not through
	// w.
	if w.Oldest != nil {
		return c.End(w.Oldest, now)
	}
	anchor := int(c.reached(w).Rank)
	told := e.Cause == Deadlock && anchor >= 0 && anchor != c.Self
	e.Cause, e.Rank, e.Path, e.Hops = Inside, e.Path[0], e.Path[:waits], int32(waits)
	if told || c.IsDeadlock(w) {
		e.Cause = Deadlock
	}
	return e
}

// Answer records an ask of the rank from, and answers it with the position p of this rank. It then
// asks the ranks for which this rank waits, unless it has asked them within relayAfter.
func (c *Chase) Answer(from int, ask *Signal, p Position, now time.Duration) {
	key := asker{from, ask.Comm, ask.Seq}
	if c.askers == nil {
		c.askers = make(map[asker]*askRecord)
	}
	a := &askRecord{ask: *ask, at: now}
	c.askers[key] = a
	if w := p.Wait; w != nil {
		w.wanted = now
		if now-w.asked >= relayAfter || w.asked == 0 || c.HasUnasked(w, now) {
			c.Ask(w, now)
		}
	}
	c.tell(from, a, p, ask.At, now)
}

// tell sends an asker this rank's current knowledge. at is the time of the ask, or 0 for
// news.
func (c *Chase) tell(to int, a *askRecord, p Position, at, now time.Duration) {
	a.state, a.end, a.via = p.State, c.localEnd(p, now), p.Wait
	s := &Signal{Kind: Tell, Envelope: a.ask.Envelope, At: at, State: a.state, End: a.end, Sends: p.Sends, Full: p.Full}
	if p.Wait != nil {
		s.Blocker = p.Wait.Envelope
	}
	c.Send(to, s)
}

// localEnd returns the end of the chain from this rank on. The chain ends here if this rank is in
// no call.
func (c *Chase) localEnd(p Position, now time.Duration) End {
	e := End{Rank: int32(c.Self), Slow: noLink()}
	switch {
	case p.Wait != nil:
		e = c.End(p.Wait, now)
	case p.State == NotYet && !p.Busy:
		e.Cause = Absent
	}
	e.Anchor = c.anchor(p, now)
	return e
}

// SendNews sends news to the recent askers: to all if w is nil, which the watchdog does periodically;
// or after a tell for w, to the askers whose last tell was computed from w, up to maxNews for an ask.
// where returns the position of this rank in relation to a call, for the rank that has asked.
func (c *Chase) SendNews(w *Wait, where func(e transport.Envelope, asker int) Position, now time.Duration) {
	for key, a := range c.askers {
		if now-a.at >= forgetAfter {
			delete(c.askers, key)
			continue
		}
		if w != nil && (a.via != w || a.news == maxNews) {
			continue
		}
		p := where(a.ask.Envelope, key.rank)
		if e := c.localEnd(p, now); p.State != a.state || e.news(&a.end) {
			if w != nil {
				a.news++
			}
			c.tell(key.rank, a, p, 0, now)
		}
	}
}

// Blame returns the ranks that block w, as far as is known, and the reason. If rank B does not
// answer rank A, which waits for B, but answers this rank, the connection between A and B is slow.
// Then Blame returns the one of A and B that answers this rank more slowly.
func (c *Chase) Blame(w *Wait, now time.Duration) ([]int, Cause) {
	e := c.End(w, now)
	rank := int(e.Rank)
	switch {
	case e.Hops == 0:
		return nil, Inside
	case e.Cause == Deadlock:
		return e.cycle(), Deadlock
	case e.Cause == Absent && !w.contradicts(rank), e.Cause == Silent && c.confirms(rank, now):
		return []int{rank}, e.Cause
	}
	if slow := c.slowerEnd(e.Slow, now); slow >= 0 {
		return []int{slow}, Slow
	}
	return []int{rank}, Inside
}

// contradicts reports whether a rank has told this rank that it is in a call, although other ranks
// report that it is in no call: reports over slow connections can be out of date.
func (w *Wait) contradicts(rank int) bool {
	a := w.answers[rank]
	return a != nil && a.told && (a.end.Cause != Absent || int(a.end.Rank) != rank)
}

// hasAnswered reports whether a rank has answered all asks of this rank.
func (c *Chase) hasAnswered(rank int) bool {
	ct := c.contacts[rank]
	return rank == c.Self || ct != nil && ct.pending == 0
}

// confirms reports whether a rank that another rank reports as silent does not answer this rank
// either.
func (c *Chase) confirms(rank int, now time.Duration) bool {
	ct := c.contacts[rank]
	return ct != nil && ct.confirms(now)
}

// slowerEnd returns the end of a slow link that answers this rank more slowly than the other end,
// or -1 if the link is not slow. If this rank is one end, the other end is returned.
func (c *Chase) slowerEnd(l Link, now time.Duration) int {
	responseTime := func(rank int32) time.Duration {
		if ct := c.contacts[int(rank)]; ct != nil {
			return ct.responseTime(now)
		}
		return 0
	}
	switch {
	case l.ResponseTime < slowAfter:
		return -1
	case l.To == int32(c.Self), l.From != int32(c.Self) && responseTime(l.From) > responseTime(l.To):
		return int(l.From)
	}
	return int(l.To)
}
