// Package stall finds out who holds up a call, and after how long that is worth a word. It is
// pure: times come from the caller and signals go to it.
//
// Ranks that wait for messages of others make a graph, the waits-for graph. A Chase follows
// its edges (edge chasing: Chandy, Misra, Haas 1983) without a rank that knows all of it: a
// rank asks only those for which it waits, by signals, and is told what they know of the end
// of their own waits, which it passes on to those who have asked it. So each rank has few to
// ask, however many there are, and the end reaches all who wait for it as soon as it is known:
//
//	Ask:  0 -> 1 -> 2 -> 3    0 waits for 1, 1 for 2, 2 for 3
//	Tell: 0 <- 1 <- 2 <- 3    3 is not in the call
//
// A rank that waits in two ways, to receive and to send, waits for both; the way that ends
// at the more certain cause counts. Where a connection is slow, and only there, those who
// wait ask its two ends and the rank at the end of the way as well: to find out which is slow,
// and as what has come over it is old.
//
// Waits and signals change all the time; what a rank knows may be old. So a round of waits
// within one call means nothing, as a message is on its way somewhere; one of calls that
// differ is a deadlock only if all of them block and nothing can be on its way: each rank
// has been answered since it began to wait by the one for which it waits, and a signal never
// overtakes a message. What goes round in a circle and has lost its origin is forgotten,
// as the waits on its way are counted.
//
// Limit learns from when on a wait is unusual.
package stall

import (
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

const (
	// firmAnswers is how many answers since a wait began show that nothing is on its way: one
	// may have been taken whose receiver has not run yet.
	firmAnswers = 2
	// relayAfter is how old what a rank has asked may be when it is asked itself.
	relayAfter = 100 * time.Millisecond
	// forgetAfter is how long a rank that has asked is told of news.
	forgetAfter = 3 * time.Second
)

// Wait is a call in progress at this rank.
type Wait struct {
	transport.Envelope
	For      [2]int        // the ranks from which it receives and to which it sends, -1 for none
	Since    time.Duration // when a message last went or came
	Blocking bool          // its caller does nothing else
	Oldest   *Wait         // which this rank tells of who is in another call; nil if that is this one, or there is none

	asked, wanted time.Duration // when this rank has asked for it last, and when another has
	answers       map[int]*answer
}

// answer is what a rank has told of itself for the sake of a wait.
type answer struct {
	told  bool
	state State
	end   End
	since time.Duration // Since of the wait to which the next belongs
	count int           // answers
}

// Waits reports whether w waits for a message of another rank.
func (w *Wait) Waits() bool { return w.For[0] >= 0 || w.For[1] >= 0 }

// Wanted reports whether another rank has asked for w of late.
func (w *Wait) Wanted(now time.Duration) bool { return w.wanted > 0 && now-w.wanted < forgetAfter }

// Asked returns when the ranks that w waits for were asked last, 0 for never.
func (w *Wait) Asked() time.Duration { return w.asked }

// Forget lets w begin anew.
func (w *Wait) Forget() { w.asked, w.wanted, w.answers = 0, 0, nil }

// Place is where this rank is in relation to a call that it is asked about.
type Place struct {
	State State
	Busy  bool               // in another call
	Wait  *Wait              // that holds it up, in that call or in another one; nil for none
	Rival transport.Envelope // see Signal
}

// Chase is what one rank knows of the waits-for graph.
type Chase struct {
	Self  int
	Ranks int
	Send  func(to int, s *Signal)

	contacts map[int]*contact
	askers   map[asker]*asking
}

// asker is a rank, and the call about which it has asked.
type asker struct {
	rank int
	comm uint64
	seq  uint32
}

// asking is what an asker was told last.
type asking struct {
	ask   Signal
	at    time.Duration
	state State
	end   End
	via   *Wait
}

// Rest lets the chase begin anew when no call waits.
func (c *Chase) Rest() { clear(c.contacts) }

func (c *Chase) contact(rank int) *contact {
	if c.contacts == nil {
		c.contacts = make(map[int]*contact)
	}
	if c.contacts[rank] == nil {
		c.contacts[rank] = new(contact)
	}
	return c.contacts[rank]
}

// targets lists whom to ask for the sake of w.
func (c *Chase) targets(w *Wait, now time.Duration) []int {
	var all []int
	add := func(rank int) {
		if rank >= 0 && rank != c.Self && !slices.Contains(all, rank) {
			all = append(all, rank)
		}
	}
	add(w.For[0])
	add(w.For[1])
	if e := c.End(w, now); e.Why == Silent || e.Slow.Took >= slowAfter {
		add(int(e.Slow.From))
		add(int(e.Slow.To))
		add(int(e.Rank))
	}
	return all
}

// Ask asks whom w waits for.
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
		c.Send(rank, &Signal{Kind: Ask, Envelope: w.Envelope, At: now, End: End{Slow: noLink()}})
	}
}

// Lacks reports whether w waits for a rank that was not asked for it.
func (c *Chase) Lacks(w *Wait, now time.Duration) bool {
	return slices.ContainsFunc(c.targets(w, now), func(rank int) bool { return w.answers[rank] == nil })
}

// Settled reports whether all who were asked have answered, or not for so long that this
// tells something, and the chase has ended.
func (c *Chase) Settled(w *Wait, now time.Duration) bool {
	for _, rank := range c.targets(w, now) {
		if w.answers[rank] == nil || !c.contact(rank).settled(now) {
			return false
		}
	}
	e := c.End(w, now)
	return e.Why != Unknown && (e.Why != Silent || c.lives(int(e.Rank)) || c.confirms(int(e.Rank), now))
}

// Hear takes in a tell for the sake of w, which is nil if the call is over.
func (c *Chase) Hear(from int, s *Signal, w *Wait, now time.Duration) {
	timed := s.At > 0
	if ct := c.contacts[from]; ct != nil && timed {
		ct.tell(s.At, now)
	}
	if w == nil || w.answers[from] == nil {
		return
	}
	a := w.answers[from]
	a.told, a.state, a.end = true, s.State, s.End
	if a.since != w.Since {
		a.since, a.count = w.Since, 0
	}
	if timed && s.At >= w.Since {
		a.count++
	}
}

// End returns what is known of the end of the waits from w on.
func (c *Chase) End(w *Wait, now time.Duration) End {
	out := End{Rank: int32(c.Self), Slow: noLink()}
	for i, rank := range w.For {
		if rank < 0 || rank == c.Self || i > 0 && rank == w.For[0] {
			continue
		}
		e := c.follow(w, rank, now)
		slow := out.Slow.slower(e.Slow)
		if out.Hops == 0 || e.Why > out.Why {
			out = e
		}
		out.Slow = slow
	}
	return out
}

// follow returns the end of the way that begins with the wait for a rank.
func (c *Chase) follow(w *Wait, rank int, now time.Duration) End {
	e := End{Why: Unknown, Rank: int32(rank), Hops: 1, Slow: noLink(), Path: []int32{int32(rank)}}
	ct, a := c.contacts[rank], w.answers[rank]
	if ct != nil && ct.took(now) > 0 {
		e.Slow = Link{int32(c.Self), int32(rank), ct.took(now)}
	}
	switch {
	case ct != nil && ct.silent(now):
		e.Why = Silent
		return e
	case a == nil || !a.told:
		return e
	}
	e.Why, e.Rank, e.Hops, e.Slow = a.end.Why, a.end.Rank, a.end.Hops+1, e.Slow.slower(a.end.Slow)
	if e.Why == Unknown {
		e.Rank = int32(rank)
	}
	e.Path = append(e.Path, a.end.Path...)
	if a.state == Present {
		e.Same = a.end.Same + 1
	}
	if w.Blocking && a.since == w.Since && a.count >= firmAnswers {
		e.Firm = a.end.Firm + 1
	}
	if round := slices.Index(e.Path, int32(c.Self)); round >= 0 {
		return c.circle(e, w, round+1, now)
	}
	if int(e.Hops) > c.Ranks { // round and round
		return End{Rank: int32(rank), Slow: e.Slow, Hops: 1, Path: e.Path[:1]}
	}
	return e
}

// circle returns the end of a way that leads back to this rank by so many waits.
func (c *Chase) circle(e End, w *Wait, waits int, now time.Duration) End {
	if w.Oldest != nil { // for which the others wait
		return c.End(w.Oldest, now)
	}
	e.Why, e.Rank, e.Path, e.Hops = Inside, e.Path[0], e.Path[:waits], int32(waits)
	e.Same, e.Firm = min(e.Same, e.Hops), min(e.Firm, e.Hops)
	if e.Same < e.Hops && e.Firm == e.Hops {
		e.Why = Deadlock
	}
	return e
}

// Answer tells a rank that asks about a call where this one is.
func (c *Chase) Answer(from int, ask *Signal, p Place, now time.Duration) {
	key := asker{from, ask.Comm, ask.Seq}
	if c.askers == nil {
		c.askers = make(map[asker]*asking)
	}
	a := &asking{ask: *ask, at: now}
	c.askers[key] = a
	if w := p.Wait; w != nil {
		w.wanted = now
		if now-w.asked >= relayAfter || w.asked == 0 || c.Lacks(w, now) {
			c.Ask(w, now)
		}
	}
	c.tell(from, a, p, ask.At, now)
}

// tell tells an asker what is known.
func (c *Chase) tell(to int, a *asking, p Place, at, now time.Duration) {
	a.state, a.end, a.via = p.State, c.here(p, now), p.Wait
	c.Send(to, &Signal{Kind: Tell, Envelope: a.ask.Envelope, At: at, State: a.state, End: a.end, Rival: p.Rival})
}

// here returns the end of the chase that has come to this rank.
func (c *Chase) here(p Place, now time.Duration) End {
	switch {
	case p.Wait != nil:
		return c.End(p.Wait, now)
	case p.State == NotYet && !p.Busy:
		return End{Why: Absent, Rank: int32(c.Self), Slow: noLink()}
	}
	return End{Rank: int32(c.Self), Slow: noLink()}
}

// Pass tells those who have asked of late what is news to them: all of them, or those who wait
// for w. where says where this rank is.
func (c *Chase) Pass(w *Wait, where func(transport.Envelope) Place, now time.Duration) {
	for key, a := range c.askers {
		if now-a.at >= forgetAfter {
			delete(c.askers, key)
			continue
		}
		if w != nil && a.via != w {
			continue
		}
		p := where(a.ask.Envelope)
		if e := c.here(p, now); p.State != a.state || e.news(&a.end) {
			c.tell(key.rank, a, p, 0, now)
		}
	}
}

// Blame says who holds up w, as far as is known, and why. A rank that does not answer one
// that waits for it, but does answer this one, has a slow connection, or the other one has.
func (c *Chase) Blame(w *Wait, now time.Duration) ([]int, Why) {
	e := c.End(w, now)
	rank := int(e.Rank)
	switch {
	case e.Hops == 0:
		return nil, Inside
	case e.Why == Deadlock:
		return e.round(), Deadlock
	case e.Why == Absent && !w.denies(rank), e.Why == Silent && c.confirms(rank, now):
		return []int{rank}, e.Why
	}
	if slow := c.slower(e.Slow, now); slow >= 0 {
		return []int{slow}, Slow
	}
	return []int{rank}, Inside
}

// denies reports whether a rank that is said to be in no call has told otherwise: what has come
// over slow connections is old.
func (w *Wait) denies(rank int) bool {
	a := w.answers[rank]
	return a != nil && a.told && (a.end.Why != Absent || int(a.end.Rank) != rank)
}

// lives reports whether a rank answers this one.
func (c *Chase) lives(rank int) bool {
	ct := c.contacts[rank]
	return rank == c.Self || ct != nil && ct.pending == 0
}

// confirms reports whether a rank does not answer this one either.
func (c *Chase) confirms(rank int, now time.Duration) bool {
	ct := c.contacts[rank]
	return ct != nil && ct.confirms(now)
}

// slower returns the rank of a slow link that is slower to answer this one, -1 if the link
// is not slow.
func (c *Chase) slower(l Link, now time.Duration) int {
	took := func(rank int32) time.Duration {
		if ct := c.contacts[int(rank)]; ct != nil {
			return ct.took(now)
		}
		return 0
	}
	switch {
	case l.Took < slowAfter:
		return -1
	case l.To == int32(c.Self), l.From != int32(c.Self) && took(l.From) > took(l.To):
		return int(l.From)
	}
	return int(l.To)
}
