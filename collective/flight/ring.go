package flight

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
)

const (
	// Calls is the number of calls that a Ring keeps.
	Calls = 1024
	// block is the number of calls for which a Ring allocates memory at a time, so that a process with
	// few calls needs little of it.
	block = 64
	// maxHeld bounds the calls in progress that a Ring keeps in addition, when 1,024 later calls have begun.
	maxHeld = 16
	// maxSessions bounds the sessions of a Ring, and maxGroups the communicators of each.
	maxSessions = 8
	maxGroups   = 64
	// pointBit marks the Seq of a Send or Recv, whose other bits are its tag.
	pointBit = 1 << 31
)

// Ring is the flight record of one process: its last 1,024 calls, and the sessions in which they were made. Older calls
// are overwritten, except calls in progress. A Ring allocates no memory for a call once it has been
// filled. It is safe for concurrent use; no method waits for more than another method. The zero value is not ready: see New.
type Ring struct {
	start time.Time

	mu       sync.Mutex
	last     uint64                       // number of the last call; calls are numbered from 1
	blocks   [Calls / block]*[block]entry // call n is at n mod Calls
	held     []entry                      // calls in progress that were overwritten, at most maxHeld
	sessions []*Recorder                  // at most maxSessions, the latest last
	mirror   []byte                       // nil for none
}

// New returns an empty Ring. Its times are measured from start.
func New(start time.Time) *Ring { return &Ring{start: start} }

// Start returns the origin of the times of the calls.
func (r *Ring) Start() time.Time { return r.start }

// entry is a call.
type entry struct {
	number     uint64
	session    *Recorder
	comm       uint64
	seq        uint32
	call       transport.Call
	purpose    string
	peer       int // rank of the transport at the other end of a Send or Recv, -1 for none
	sends      bool
	background bool
	begun      time.Duration
	ended      time.Duration // 0 while the call is in progress
	err        error
	wait       Wait
}

// Wait says for whom a call waits, as far as its rank knows. Ranks are ranks of the transport.
type Wait struct {
	For      int           // the first rank for which it waits, -1 for none
	Quiet    time.Duration // how long it has been without a message
	Culprits []int         // the ranks that the watchdog of the call has found to block it; the slice is not changed any more
	Phase    string        // what they do, one of the Phase constants of package collective; or empty
}

// Recorder records the calls of one session in a Ring. A nil Recorder records nothing.
type Recorder struct {
	ring   *Ring
	offset time.Duration // see Origin
	about  Session       // the field Groups is guarded by Ring.mu
}

// Session begins a session of this process and returns its Recorder. Members are the names of the members by rank. The slice
// belongs to the Ring from then on.
func (r *Ring) Session(epoch uint64, rank int, members []string) *Recorder {
	s := &Recorder{ring: r, about: Session{Epoch: epoch, Rank: rank, Members: members}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sessions) == maxSessions {
		r.sessions = slices.Delete(r.sessions, 0, 1)
	}
	r.sessions = append(r.sessions, s)
	r.mirrorSessions()
	return s
}

// Origin tells that the times of later calls are measured from a time. It is called before the first call.
func (r *Recorder) Origin(from time.Time) {
	if r != nil {
		r.offset = from.Sub(r.ring.start)
	}
}

// Group records the ranks of a communicator, as ranks of the transport. Without it a communicator
// counts as one of all ranks. The slice belongs to the Recorder from then on.
func (r *Recorder) Group(comm uint64, ranks []int) {
	if r == nil {
		return
	}
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	groups := r.about.Groups
	if len(groups) == maxGroups {
		groups = slices.Delete(groups, 0, 1)
	}
	r.about.Groups = append(groups, Group{Comm: comm, Ranks: ranks})
	r.ring.mirrorSessions()
}

// Begun is what Begin gets of a call.
type Begun struct {
	Envelope   *transport.Envelope // of its messages; only read
	Purpose    string
	Peer       int // rank of the transport at the other end of a Send or Recv, -1 for none
	Sends      bool
	Background bool          // the program does not wait for its end
	At         time.Duration // since Origin
}

// Begin records that a call begins and returns its number, for the other methods. The number is 0 for a nil Recorder.
func (r *Recorder) Begin(b *Begun) (number uint64) {
	if r == nil {
		return 0
	}
	g := r.ring
	g.mu.Lock()
	g.last++
	number = g.last
	at := &g.blocks[number%Calls/block]
	if *at == nil {
		*at = new([block]entry)
	}
	e := &(*at)[number%block]
	if e.number != 0 && e.ended == 0 {
		g.hold(e)
	}
	e.number, e.session = number, r
	e.comm, e.seq = b.Envelope.Comm, b.Envelope.Seq
	e.call = b.Envelope.Call
	e.purpose, e.peer, e.sends, e.background = b.Purpose, b.Peer, b.Sends, b.Background
	e.begun, e.ended = r.offset+b.At, 0
	e.err, e.wait = nil, Wait{For: -1}
	g.mirrorBegin(e)
	g.mu.Unlock()
	return number
}

// hold keeps a call in progress that is about to be overwritten. The caller holds mu.
func (r *Ring) hold(e *entry) {
	if len(r.held) == maxHeld {
		r.held = slices.Delete(r.held, 0, 1)
	}
	r.held = append(r.held, *e)
}

// find returns a call by its number, nil if it was overwritten. The caller holds mu.
func (r *Ring) find(number uint64) *entry {
	if at := r.blocks[number%Calls/block]; at != nil && at[number%block].number == number {
		return &at[number%block]
	}
	for i := range r.held {
		if r.held[i].number == number {
			return &r.held[i]
		}
	}
	return nil
}

// End records that a call has ended at a time since Origin, with an error or nil.
func (r *Recorder) End(number uint64, at time.Duration, err error) {
	if r == nil {
		return
	}
	g := r.ring
	g.mu.Lock()
	if e := g.find(number); e != nil {
		e.ended, e.err = max(r.offset+at, 1), err
		g.mirrorEnd(e)
	}
	g.mu.Unlock()
}

// Wait records for whom a call in progress waits.
func (r *Recorder) Wait(number uint64, w Wait) {
	if r == nil {
		return
	}
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	if e := r.ring.find(number); e != nil && e.ended == 0 {
		if w.Phase == "" && len(w.Culprits) == 0 {
			w.Culprits, w.Phase = e.wait.Culprits, e.wait.Phase
		}
		e.wait = w
	}
}

// Record returns what the Ring has at a time: the calls, the oldest first, and the sessions in which they were
// made. It shares no memory with the Ring. The caller fills in the other fields.
func (r *Ring) Record(now time.Time) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Record{Version: Version, Taken: now, Total: r.last, Calls: []Call{}, Sessions: []Session{}}
	for _, s := range r.sessions {
		about := s.about
		about.Members, about.Groups = slices.Clone(about.Members), slices.Clone(about.Groups)
		out.Sessions = append(out.Sessions, about)
	}
	for i := range r.held {
		if r.held[i].ended == 0 {
			out.Calls = append(out.Calls, r.held[i].export(r.start, now))
		}
	}
	for n := max(r.last, Calls) - Calls + 1; n <= r.last; n++ {
		if e := r.find(n); e != nil {
			out.Calls = append(out.Calls, e.export(r.start, now))
		}
	}
	return out
}

// export returns the entry as a Call.
func (e *entry) export(start, now time.Time) Call {
	c := Call{Number: e.number, Epoch: e.session.about.Epoch, Comm: e.comm, Seq: e.seq &^ pointBit, Kind: e.call.Kind.String(), What: e.call.String(),
		Segment: e.call.Segment, Count: e.call.Count, Bytes: e.call.Count * sizeOf(e.call.Type), For: e.purpose, Background: e.background,
		Began: start.Add(e.begun), Open: e.ended == 0}
	end := e.ended
	if c.Open {
		end = now.Sub(start)
	}
	c.MS = float64(max(0, end-e.begun)) / float64(time.Millisecond)
	if e.call.Kind == transport.KindPoint {
		c.Point = &Point{Peer: e.peer, Sends: e.sends}
	}
	if w := e.wait; w.For >= 0 || w.Phase != "" {
		c.Wait = &Waiting{For: w.For, QuietMS: float64(w.Quiet) / float64(time.Millisecond), Culprits: slices.Clone(w.Culprits), Phase: w.Phase}
	}
	if e.err != nil {
		c.Error = clip(e.err.Error(), maxError)
		c.Failure, c.Blames = blamed(e.err, e.session.about.Rank)
	}
	return c
}

// String names the call for people, as in "call 7 (allreduce float32[1000] sum by ring)".
func (c Call) String() string {
	if c.Point == nil {
		return fmt.Sprintf("call %d (%s)", c.Seq, c.What)
	}
	verb := "Recv from"
	if c.Point.Sends {
		verb = "Send to"
	}
	return fmt.Sprintf("%s rank %d with tag %d", verb, c.Point.Peer, c.Seq)
}

// blamed returns the kind of the error of a call at a rank, and the ranks that it names.
func blamed(err error, self int) (failure string, ranks []int) {
	var m *transport.MismatchError
	var d *transport.DeadlockError
	var p *transport.PeerError
	var a *transport.AbortError
	switch {
	case errors.As(err, &m):
		return FailureMismatch, []int{m.RankA, m.RankB}
	case errors.As(err, &d):
		for _, w := range d.Waits {
			ranks = append(ranks, w.Rank)
		}
		return FailureDeadlock, ranks
	case errors.As(err, &p):
		return FailurePeer, []int{p.Rank}
	case errors.As(err, &a) && a.Rank != self:
		return FailureAbort, []int{a.Rank}
	}
	return FailureOwn, []int{self}
}

// sizeOf returns the bytes of an element, 0 for an unknown type.
func sizeOf(t dtype.Type) uint64 {
	switch t {
	case dtype.Int8, dtype.Uint8:
		return 1
	case dtype.F16, dtype.BF16:
		return 2
	case dtype.Int32, dtype.Uint32, dtype.F32:
		return 4
	case dtype.Int64, dtype.Uint64, dtype.F64:
		return 8
	}
	return 0
}
