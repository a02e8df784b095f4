package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Stall describes a call that is held up unusually long. Ranks count in the
// transport.
type Stall struct {
	Call     transport.Call
	For      string        // what its caller said that it is for, see CallOptions; or empty
	Since    time.Duration // how long it has been held up, or its step, where Options.Step tells of steps
	Quiet    time.Duration // how long it has been without a message
	Waiting  int           // rank from which the caller receives, or -1
	Culprits []int         // ranks that hold up the call, as far as is known
	Phase    string        // what the culprits do: one of the Phase constants
}

// Phases of a Stall.
const (
	PhaseAbsent = "not in the call" // it lives and does something else
	PhaseSilent = "no answer"       // to this rank's roll call
	PhaseSlow   = "slow to answer"  // in the call, but messages from or to it take long
	PhaseInside = "in the call"     // and nothing else is known
)

// What says which call is held up.
func (s Stall) What() string {
	if s.For == "" {
		return s.Call.String()
	}
	return s.For + ", " + s.Call.String()
}

// String says who is waited for, in one line without ranks' names.
func (s Stall) String() string {
	return fmt.Sprintf("%s waits %.1fs for rank %v (%s)", s.What(), s.Since.Seconds(), s.Culprits, s.Phase)
}

const (
	// silentAfter is how long a rank may leave silentAsks unanswered, as signals may be lost,
	// before it counts as one that does not answer.
	silentAfter = 500 * time.Millisecond
	silentAsks  = 3
	// slowAfter is how long an answer takes at least that says something about a link.
	slowAfter = 100 * time.Millisecond
)

// contact is what roll calls tell of a rank, whichever call they are for.
type contact struct {
	pending time.Duration // when it was asked what it has not answered; 0 for nothing
	missing int           // roll calls since then
	asked   time.Duration // when last
	slowest time.Duration // of its answers
	plight  plight        // as it told last
}

// ask notes that the rank is asked. What is asked about several calls at one look is one
// roll call.
func (c *contact) ask(now time.Duration) {
	if c.pending == 0 {
		c.pending, c.missing = now, 1
	} else if now-c.asked >= watchPeriod/2 {
		c.missing++
	}
	c.asked = now
}

// tell takes in its answer.
func (c *contact) tell(m signal, now time.Duration) {
	c.plight = m.plight
	c.slowest = max(c.slowest, now-m.at)
	switch {
	case m.at >= c.asked:
		c.pending = 0
	case c.pending != 0 && m.at >= c.pending:
		c.pending, c.missing = c.asked, 1 // what it was asked last has no answer yet
	}
}

// took returns how long the rank takes to answer, as far as is known at now.
func (c *contact) took(now time.Duration) time.Duration {
	if c.pending == 0 {
		return c.slowest
	}
	return max(c.slowest, now-c.pending)
}

// silent reports whether the rank does not answer. A signal never overtakes a message:
// so the same is seen where a message of that rank is on its way for long, and one that
// answers has not sent what is waited for.
func (c *contact) silent(now time.Duration) bool {
	return c.pending != 0 && c.missing >= silentAsks && now-c.pending >= silentAfter
}

// suspects are ranks with what speaks against them.
type suspects struct {
	silent  []int
	absent  []int // not in the call, nor in another one
	excused []int // not in the call, because they are held up in another one
}

// culprits says who holds up o, and what they do. A rank that does not answer comes
// first: those who do may all wait for it. Then come those who live and do something
// else. Those who are held up themselves are not to blame: if there is nobody else,
// whoever they wait for is, or the slowest connection.
func (o *operation) culprits(now time.Duration) ([]int, string) {
	s := o.suspects(now)
	if len(s.silent) > 0 {
		return s.silent, PhaseSilent
	}
	if len(s.absent) > 0 {
		return s.absent, PhaseAbsent
	}
	if peer := o.beyond(s.excused); peer >= 0 {
		return []int{peer}, PhaseAbsent
	}
	if peer := o.slowest(now); peer >= 0 {
		return []int{peer}, PhaseSlow
	}
	if peer := o.partner(); peer >= 0 {
		return []int{peer}, PhaseInside
	}
	return nil, PhaseInside
}

// suspects goes through the answers of the others.
func (o *operation) suspects(now time.Duration) suspects {
	var s suspects
	for _, peer := range o.others() {
		c := o.contacts[peer]
		switch {
		case c == nil: // not asked yet
		case c.silent(now):
			s.silent = append(s.silent, peer)
		case o.roll.states[peer] != absent:
		case c.plight.inside:
			s.excused = append(s.excused, peer)
		default:
			s.absent = append(s.absent, peer)
		}
	}
	return s
}

// beyond follows those who are held up in another call to a rank that is not in o, and of
// which this one has not heard: it is in another communicator with them. -1 if there is
// none.
func (o *operation) beyond(excused []int) int {
	for _, peer := range excused {
		for range o.contacts { // at most once round
			c := o.contacts[peer]
			if c == nil || !c.plight.inside {
				break
			}
			peer = int(c.plight.waits)
		}
		if peer >= 0 && peer != o.self && o.contacts[peer] == nil {
			return peer
		}
	}
	return -1
}

// slowest finds the two ranks of which one took longest to answer the other, as far as
// all have told, and returns the one of them that is slower to answer this rank, too. -1
// if all answer at once.
func (o *operation) slowest(now time.Duration) int {
	x, y, most := -1, -1, slowAfter
	for _, peer := range o.others() {
		c := o.contacts[peer]
		if c == nil {
			continue
		}
		if d := c.took(now); d >= most {
			x, y, most = o.self, peer, d
		}
		if p := c.plight; p.slow >= 0 && p.took > most {
			x, y, most = peer, int(p.slow), p.took
		}
	}
	if x == o.self || y < 0 {
		return y
	}
	if y == o.self {
		return x
	}
	cx, cy := o.contacts[x], o.contacts[y]
	if cx != nil && cy != nil && cx.took(now) > cy.took(now) {
		return x
	}
	return y
}

// partner returns the rank that o waits for, or -1.
func (o *operation) partner() int {
	if o.peer >= 0 {
		return o.peer
	}
	return int(o.waiting.Load()) - 1
}

// plight tells how this rank is held up itself. Calls that its program is not waiting in
// may stay open for ever, such as a receive for what may never come; they are no excuse.
func (w *world) plight(now time.Duration) plight {
	p := plight{waits: -1, slow: -1}
	for _, o := range w.inProgress() {
		if o.age(now) >= rollCallAfter && (o.peer < 0 || o.blocking) {
			p.inside, p.waits = true, int32(o.partner())
			break
		}
	}
	for peer, c := range w.contacts {
		if d := c.took(now); d > p.took {
			p.slow, p.took = int32(peer), d
		}
	}
	return p
}

// report tells of a call that is held up as far as s says, unless the same has been said
// just now of another one: as a rule several calls wait for the same rank.
func (w *world) report(o *operation, s Stall, now time.Duration) {
	o.roll.reported = s.Since
	if w.opts.OnStall == nil {
		return
	}
	s.Call, s.For, s.Waiting = o.env.Call, o.purpose, int(o.waiting.Load())-1
	s.Culprits, s.Phase = o.culprits(now)
	same := w.said.by != o && slices.Equal(w.said.culprits, s.Culprits)
	if same && now-w.said.at < max(stallAfter, s.Since/4) {
		return
	}
	w.said = said{o, s.Culprits, now}
	w.opts.OnStall(s)
}

// said is the last report.
type said struct {
	by       *operation
	culprits []int
	at       time.Duration
}
