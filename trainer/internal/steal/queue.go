package steal

import (
	"errors"
	"slices"

	"github.com/elrun/elrun/trainer/internal/ledger"
)

// Board has a few words for each rank of a host, which all ranks of the host may read and swap. For a
// rank of another host Has is false. After the end of the session Load returns 0.
type Board interface {
	Has(rank int) bool
	Load(rank, i int) uint64
	Store(i int, v uint64) // word i of this rank
	Swap(rank, i int, old, next uint64) bool
}

// Words of a rank on the board. Only the first one is exact: the others help thieves to choose.
const (
	wordQueue = iota // Word
	wordPace         // nanoseconds of a microbatch in the last call; 0 if unknown
	wordBegun        // nanoseconds from the beginning of the try to that of the call under way
	wordUnder        // microbatches in the call under way in the lower half, kept ones in the upper half
)

// latency is the time of a theft in nanoseconds: some accesses to memory that another core has
// changed.
const latency = 20_000

// ErrDamaged means that a rank does not know which of its microbatches it has not begun.
var ErrDamaged = errors.New("the memory that the ranks of this host share is damaged, or the session is closed")

// Queue gives out the microbatches of a rank's share call by call, in one try at a step after the
// other. Where the ranks of a host share words, others may take microbatches that the rank has not
// begun, and a rank that has only its last call left puts this call aside and takes microbatches from
// the rank with the longest rest, until none is worth it. Then it makes its last call, during which
// the sums are reduced.
//
// The zero value with the exported fields set is ready, and nothing is stolen until Enter. A Queue is
// not safe for concurrent use: each rank has its own.
type Queue struct {
	// Now returns the time in nanoseconds since any origin.
	Now func() int64
	// FirstCall returns the number of microbatches in the first of the calls into which n microbatches
	// are divided; most bounds the microbatches of a call.
	FirstCall func(n, most int) int
	// Allowed is set if microbatches may be stolen at all, the same at all ranks.
	Allowed bool
	// Far is set if ranks of other hosts may steal, too, by notes; the same at all ranks.
	Far bool
	// Bound is the most microbatches that this rank holds in a step if it steals; 0 for no bound.
	Bound int
	// Wait waits until woken receives, or for some nanoseconds, and Broken returns why this rank waits no
	// longer for an answer of another host. They are set if Far is set, before Enter.
	Wait   func(woken <-chan struct{}, most int64)
	Broken func() error

	// The session.
	active bool  // microbatches may be stolen somewhere in the session
	hosts  []int // host of each rank
	self   int   // this rank
	board  Board
	remote *remote      // nil where nothing is stolen between hosts
	held   []ledger.Set // what each rank held when the session began; nil after the first try

	// The try under way.
	try   uint32 // number of the try in the session, the same at all ranks
	calls [][]int
	begin int64
	order []int // microbatch at each position
	most  int   // microbatches of a call
	// first is where the range of this rank began, and front and end are what this rank knows of it:
	// others can only lower end.
	first, front, end int
	stolen            bool  // the range is a claim
	kept              []int // the last call, put aside
	done              bool  // no further call follows
	claims            []Claim
	took              int64 // time of the last try; 0 if unknown
	asks              int   // how often the other hosts were asked since the last theft
	askedAt           int64 // when they were asked last
	refused           bool  // a rank of another host had nothing to give
	// called is when the call under way began, with under microbatches; under is 0 if its time does
	// not show the pace.
	called int64
	under  int
	pace   int64 // of the last call; it outlives steps and sessions
	ranks  []Rank
	queues []Word
}

// Enter begins a session of ranks on the given hosts, in which self is this rank and each rank holds
// the given microbatches of the open step. The queue sets the handler of the notes if Far is set.
func (q *Queue) Enter(hosts []int, self int, board Board, notes Notes, held []ledger.Set) {
	far := q.Far && slices.Max(hosts) > 0
	q.hosts, q.self, q.held, q.try = hosts, self, held, 0
	q.active = q.Allowed && (far || slices.Max(hosts)+1 < len(hosts))
	q.calls, q.claims, q.order = nil, nil, q.order[:0]
	q.board, q.remote = nil, nil
	if q.active {
		q.board = &words{Board: board, self: self}
	}
	if q.active && far {
		q.remote = &remote{notes: notes, self: self, board: q.board, now: q.Now, wait: q.Wait, broken: q.Broken}
		q.remote.join(hosts)
	}
}

// Active reports whether microbatches may be stolen somewhere in the session. It is the same at all
// ranks.
func (q *Queue) Active() bool { return q.active }

// Distant reports whether microbatches may be stolen between hosts in the session. It is the same at all
// ranks.
func (q *Queue) Distant() bool { return q.remote != nil }

// Open begins a try at a step, in which the ranks have shares, and this rank has the given calls to
// make, of at most the given number of microbatches: those of its share that it does not hold.
func (q *Queue) Open(shares []ledger.Set, calls [][]int, most int) {
	q.calls = calls
	if !q.active {
		return
	}
	now := q.Now()
	q.took = now - q.begin
	if q.try == 0 {
		q.took = 0
	}
	q.try++
	q.begin, q.most = now, most
	q.order, q.claims, q.kept, q.done, q.under = q.order[:0], q.claims[:0], nil, false, 0
	for r, share := range shares {
		var held ledger.Set
		if q.held != nil {
			held = q.held[r]
		}
		first := len(q.order)
		q.order = append(q.order, share.Without(held)...)
		if r == q.self {
			q.first, q.front, q.end = first, first, len(q.order)
		}
	}
	q.held, q.stolen = nil, false
	q.asks, q.refused = 0, false
	if q.remote != nil {
		q.remote.open(q.try, q.begin, len(q.order))
	}
	if len(calls) > 0 {
		// The first call is never for sale: it may have begun already.
		q.calls = calls[:1]
		q.front += len(calls[0])
	}
	q.tell(0, 0)
	q.board.Store(wordPace, uint64(q.pace))
	q.board.Store(wordQueue, uint64(Pack(q.try, q.front, q.end)))
}

// First returns the first call, if it has not begun; nil for none.
func (q *Queue) First() []int {
	if len(q.calls) == 0 {
		return nil
	}
	return q.calls[0]
}

// Begun removes the first call, which began before the try. It reports whether no further call
// follows.
func (q *Queue) Begun() (last bool) {
	q.calls = q.calls[1:]
	if !q.active {
		return len(q.calls) == 0
	}
	q.done = q.front == q.end
	return q.done
}

// Next returns the microbatches of the next call, which are valid until the next try; nil after the
// last call. last is set if no further call follows, whatever other ranks do. held is the number of
// microbatches that this rank holds. An error is ErrDamaged.
func (q *Queue) Next(held int) (micros []int, last bool, err error) {
	if !q.active {
		if micros = q.First(); micros != nil {
			q.calls = q.calls[1:]
		}
		return micros, len(q.calls) == 0, nil
	}
	q.measure()
	if q.done {
		return nil, true, nil
	}
	if micros, err = q.pick(held); err != nil {
		return nil, false, err
	}
	q.called, q.under = q.Now(), len(micros)
	q.tell(len(micros), q.called-q.begin)
	q.prepare(len(micros))
	return micros, q.done, nil
}

// pick takes the next call: of this rank's range, or of a range that it steals, and at last the call
// that it has put aside.
func (q *Queue) pick(held int) (micros []int, err error) {
	for {
		if micros = q.First(); micros != nil {
			q.calls = nil
		} else if micros, err = q.take(); err != nil {
			return nil, err
		}
		switch {
		case len(micros) == 0 && q.rob(held+len(q.kept)):
		case len(micros) == 0:
			micros, q.kept, q.done = q.kept, nil, true
			return micros, nil
		case q.kept == nil && q.front == q.end:
			q.kept = micros
		default:
			return micros, nil
		}
	}
}

// measure records the pace of the call that has just ended.
func (q *Queue) measure() {
	if q.under == 0 {
		return
	}
	q.pace = max(1, (q.Now()-q.called)/int64(q.under))
	q.under = 0
	q.board.Store(wordPace, uint64(q.pace))
}

// tell tells the others that a call with the given number of microbatches begins.
func (q *Queue) tell(under int, begun int64) {
	q.board.Store(wordBegun, uint64(begun))
	q.board.Store(wordUnder, uint64(under)|uint64(len(q.kept))<<32)
}

// take takes the next call from the front of this rank's range; nil if the range is empty.
func (q *Queue) take() ([]int, error) {
	for q.front < q.end {
		w := Word(q.board.Load(q.self, wordQueue))
		front, end, ok := w.Range(q.try, len(q.order))
		if !ok || front != q.front || end > q.end {
			return nil, ErrDamaged
		}
		q.end = end
		if front == end {
			break
		}
		n := q.FirstCall(end-front, q.most)
		if q.board.Swap(q.self, wordQueue, uint64(w), uint64(w.Front(n))) {
			q.front += n
			return q.order[front:q.front], nil
		}
	}
	// All that was stolen is begun.
	if q.stolen && q.front > q.first {
		q.claims = append(q.claims, Claim{q.first, q.front})
	}
	q.stolen = false
	return nil, nil
}

// rob takes microbatches of another rank into the empty range of this rank, and reports whether it
// has. held is the number of microbatches that this rank will hold in any case.
func (q *Queue) rob(held int) bool {
	most := Most
	if q.Bound > 0 {
		most = max(0, q.Bound-held)
	}
	for len(q.claims) < MaxClaims {
		q.look()
		victim, n := Choose(Rank{Kept: len(q.kept), Pace: q.pace}, q.ranks, latency, most)
		if n == 0 {
			return q.robFar(most)
		}
		w := q.queues[victim]
		if !q.board.Swap(victim, wordQueue, uint64(w), uint64(w.Back(n))) {
			continue // the owner or another thief was faster
		}
		_, end, _ := w.Range(q.try, len(q.order))
		q.install(end-n, end)
		return true
	}
	return false
}

// install makes stolen positions the empty range of this rank.
func (q *Queue) install(first, end int) {
	q.first, q.front, q.end, q.stolen, q.asks = first, first, end, true, 0
	// Nobody else changes the word of an empty range.
	q.board.Store(wordQueue, uint64(Pack(q.try, first, end)))
}

// robFar takes microbatches of a rank of another host, at most the given number, and reports whether
// it has.
func (q *Queue) robFar(most int) bool {
	if q.remote == nil || q.refused {
		return false
	}
	thief := Rank{Kept: len(q.kept), Pace: q.pace}
	victim, n := q.remote.choose(thief, most)
	if n == 0 {
		return false
	}
	first, end := q.remote.take(victim, thief, most)
	if q.refused = first == end; q.refused {
		return false
	}
	q.install(first, end)
	return true
}

// worthFar is how many round trips a step must take so that stealing between hosts is worth notes. Where
// steps are shorter, a rank asks in one of rareFar tries, to learn whether that is still so.
const (
	worthFar = 10
	rareFar  = 64
)

// mostAsks bounds how often a rank asks before it looks for victims once.
const mostAsks = 3

// prepare asks the other hosts what they have left, if this rank will look for victims about when the
// answers come: while a call of the given number of microbatches runs, which begins. Nobody waits for
// the answers. It asks again after a round trip, because some ranks may not have begun the try yet, or
// may be late only now.
func (q *Queue) prepare(under int) {
	if q.remote == nil || q.refused || q.done || q.asks == mostAsks || len(q.claims) == MaxClaims {
		return
	}
	trip, rest := q.remote.roundTrip(), q.end-q.front
	if q.took > 0 && q.took < worthFar*trip && q.try%rareFar != 0 {
		return
	}
	isNear := rest <= q.most || q.pace*int64(under+rest-q.most) <= 2*trip+trip/2
	if isNear && (q.asks == 0 || q.called-q.askedAt >= trip) {
		q.asks, q.askedAt = q.asks+1, q.called
		q.remote.ask()
	}
}

// look reads what the other ranks of the host tell.
func (q *Queue) look() {
	now := q.Now() - q.begin
	n := len(q.hosts)
	q.queues = append(q.queues[:0], make([]Word, n)...)
	q.ranks = append(q.ranks[:0], make([]Rank, n)...)
	for r := range q.ranks {
		if r == q.self || !q.board.Has(r) {
			continue
		}
		q.ranks[r], q.queues[r], _ = see(q.board, r, q.try, len(q.order), now)
	}
}

// mostTime bounds the times that other ranks tell, so that damaged memory overflows nothing: 4 hours.
const mostTime = 1<<44 - 1

// Report returns what the commit record says of this rank, which holds the given microbatches. It is
// zero where nothing can be stolen.
func (q *Queue) Report(held ledger.Set) (r Report) {
	if q.active {
		copy(r.Claims[:], q.claims)
		r.Print = Print(held)
	}
	return r
}

// Stolen returns the number of microbatches that this rank has stolen in the step.
func (q *Queue) Stolen() (n int) {
	for _, c := range q.claims {
		n += c.End - c.First
	}
	return n
}

// Held returns the microbatches that each rank has contributed to the step, by the reports of all
// ranks; an error as Held returns it. Call it only where Active is true.
func (q *Queue) Held(shares []ledger.Set, reports []Report) ([]ledger.Set, error) {
	return Held(shares, q.order, reports)
}

// Suspects returns the microbatches of the open step that each rank may have computed in the
// session: each rank of a host may have stolen from the others, and between hosts each rank from all.
func (q *Queue) Suspects(shares []ledger.Set) []ledger.Set {
	if !q.active || len(q.hosts) != len(shares) {
		return shares
	}
	place := q.hosts
	if q.remote != nil { // each rank of the session
		place = make([]int, len(q.hosts))
	}
	hosts := make([]ledger.Set, slices.Max(place)+1)
	for r, share := range shares {
		h := &hosts[place[r]]
		if *h == nil {
			*h = share.Clone()
		}
		for i, w := range share {
			(*h)[i] |= w
		}
	}
	wide := make([]ledger.Set, len(shares))
	for r := range wide {
		wide[r] = hosts[place[r]]
	}
	return wide
}
