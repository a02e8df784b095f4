package steal

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
)

// Notes carries short messages between the ranks of a session. Each message may be lost. The handler
// is called by another goroutine than that of the Queue, and must not wait.
type Notes interface {
	Send(to int, note []byte)
	Handle(f func(from int, note []byte))
}

// words is a Board on which this rank always has words: its own ones where its host shares none.
type words struct {
	Board
	self int
	own  [wordUnder + 1]atomic.Uint64
}

// shares reports whether this rank has words that its host shares.
func (w *words) shares() bool { return w.Board.Has(w.self) }

// Has implements Board.
func (w *words) Has(rank int) bool { return rank == w.self || w.Board.Has(rank) }

// Load implements Board.
func (w *words) Load(rank, i int) uint64 {
	if rank == w.self && !w.shares() {
		return w.own[i].Load()
	}
	return w.Board.Load(rank, i)
}

// Store implements Board.
func (w *words) Store(i int, v uint64) {
	if !w.shares() {
		w.own[i].Store(v)
		return
	}
	w.Board.Store(i, v)
}

// Swap implements Board.
func (w *words) Swap(rank, i int, old, next uint64) bool {
	if rank == w.self && !w.shares() {
		return w.own[i].CompareAndSwap(old, next)
	}
	return w.Board.Swap(rank, i, old, next)
}

// see returns what the words of a rank tell in a try at a step with the given number of positions, at
// a time since the beginning of the try. The range is read first: once it is of this try, the other
// words are, too.
func see(b Board, rank int, try uint32, positions int, now int64) (Rank, Word, bool) {
	w := Word(b.Load(rank, wordQueue))
	next, end, ok := w.Range(try, positions)
	if !ok {
		return Rank{}, w, false
	}
	under := b.Load(rank, wordUnder)
	return Rank{Left: end - next, Kept: int(under >> 32 & Most), Under: int(under & Most),
		Running: max(0, now-int64(b.Load(rank, wordBegun)&mostTime)), Pace: int64(b.Load(rank, wordPace) & mostTime)}, w, true
}

// remote is the part of a rank that deals with ranks of other hosts in one session. A thief asks some of
// them what they have left, and asks one of them for microbatches. The remote of that rank takes them
// from its queue on behalf of the thief, by the same compare-and-swap as a thief of its own host: so
// an answer never waits for the end of a call of the model.
type remote struct {
	notes    Notes
	self     int
	board    Board // words of this rank
	now      func() int64
	wait     func(woken <-chan struct{}, most int64)
	broken   func() error
	partners []int         // ranks of other hosts that this rank asks
	woken    chan struct{} // the answer to the last take has come

	mu        sync.Mutex // guards the following
	try       uint32
	begin     int64 // of the try
	positions int
	seq       uint32
	asked     int64 // time of the last ask, with number askedAs
	askedAs   uint32
	told      map[int]told
	given     map[int]note // the last answer to a take of each rank
	got       note         // answer to the last take; none while kind is 0
	trip      int64        // longest of the last round trips; 0 if unknown
}

// told is an answer to an ask.
type told struct {
	rank Rank
	at   int64 // when it came
}

// join begins the session of ranks on the given hosts.
func (r *remote) join(hosts []int) {
	r.partners, r.woken = partners(hosts, r.self), make(chan struct{}, 1)
	r.told, r.given = make(map[int]told), make(map[int]note)
	r.notes.Handle(r.handle)
}

// partners returns the ranks of other hosts whose distance is a power of two. They are few, so a large
// group exchanges few notes over few connections, and late ranks still find thieves near and far.
func partners(hosts []int, self int) (all []int) {
	n := len(hosts)
	seen := map[int]bool{self: true}
	for distance := 1; distance < n; distance *= 2 {
		for _, r := range []int{(self + distance) % n, (self - distance + n) % n} {
			if !seen[r] && hosts[r] != hosts[self] {
				all = append(all, r)
			}
			seen[r] = true
		}
	}
	return all
}

// open begins a try. The caller then sets the word of its queue.
func (r *remote) open(try uint32, begin int64, positions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.try, r.begin, r.positions = try, begin, positions
	clear(r.told)
}

// handle handles a note of another rank.
func (r *remote) handle(from int, b []byte) {
	m, err := decodeNote(b)
	if err != nil {
		return
	}
	r.mu.Lock()
	answer := r.answer(from, m)
	r.mu.Unlock()
	if answer.kind != 0 {
		r.notes.Send(from, answer.encode())
	}
}

// answer records an answer, or returns the answer of this rank.
func (r *remote) answer(from int, m note) (answer note) {
	switch m.kind {
	case noteAsk:
		v, _, ok := see(r.board, r.self, m.try, r.positions, r.now()-r.begin)
		if !ok || m.try != r.try {
			v = Rank{}
		}
		return note{kind: noteTell, try: m.try, seq: m.seq, rank: v}
	case noteTell:
		if m.seq == r.askedAs && m.try == r.try {
			now := r.now()
			r.told[from] = told{m.rank, now}
			r.trip = max(now-r.asked, r.trip-r.trip/8, 1)
		}
	case noteTake:
		return r.give(from, m)
	case noteGive:
		if m.seq == r.seq && r.got.kind == 0 {
			r.got = m
			select {
			case r.woken <- struct{}{}:
			default:
			}
		}
	}
	return note{}
}

// give takes microbatches from the queue of this rank for a thief. A take that comes again gets the
// same answer again, and an older one gets none: its thief has gone on.
func (r *remote) give(from int, m note) (answer note) {
	if last, there := r.given[from]; there && int32(m.seq-last.seq) <= 0 {
		if m.seq != last.seq {
			return note{}
		}
		return last
	}
	answer = note{kind: noteGive, try: m.try, seq: m.seq}
	for m.try == r.try {
		v, w, ok := see(r.board, r.self, m.try, r.positions, r.now()-r.begin)
		if !ok {
			break
		}
		_, n := Choose(m.rank, []Rank{v}, m.latency, m.most)
		if n == 0 {
			break
		}
		if r.board.Swap(r.self, wordQueue, uint64(w), uint64(w.Back(n))) {
			_, end, _ := w.Range(m.try, r.positions)
			answer.first, answer.end = end-n, end
			break
		}
	}
	r.given[from] = answer
	return answer
}

// ask asks the partners what they have left.
func (r *remote) ask() {
	r.mu.Lock()
	r.seq++
	r.askedAs, r.asked = r.seq, r.now()
	m := note{kind: noteAsk, try: r.try, seq: r.seq}
	r.mu.Unlock()
	for _, rank := range r.partners {
		r.notes.Send(rank, m.encode())
	}
}

// roundTrip returns the longest of the last round trips; 0 if none is known.
func (r *remote) roundTrip() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trip
}

// choose is Choose among the partners that have told what they have left.
func (r *remote) choose(thief Rank, most int) (victim, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Rank
	var ranks []int
	for _, rank := range r.partners {
		if t, there := r.told[rank]; there {
			all, ranks = append(all, t.rank.after(r.now()-t.at)), append(ranks, rank)
		}
	}
	i, n := Choose(thief, all, r.trip, most)
	if n == 0 {
		return 0, 0
	}
	return ranks[i], n
}

// leastPause is the time after which a take is repeated at the earliest, in nanoseconds.
const leastPause = 50_000_000

// take asks a rank for microbatches until it answers, or until the session is broken. It returns the
// range that this rank has got, which is empty for none.
func (r *remote) take(victim int, thief Rank, most int) (first, end int) {
	r.mu.Lock()
	r.seq++
	r.got = note{}
	m := note{kind: noteTake, try: r.try, seq: r.seq, rank: thief, latency: r.trip, most: most}
	pause := max(leastPause, 4*r.trip)
	positions := r.positions
	r.mu.Unlock()
	select {
	case <-r.woken: // of an earlier take
	default:
	}
	for r.broken() == nil {
		r.notes.Send(victim, m.encode())
		r.wait(r.woken, pause)
		r.mu.Lock()
		got := r.got
		r.mu.Unlock()
		if got.kind != 0 {
			if got.first > got.end || got.end > positions || got.end-got.first > most {
				return 0, 0
			}
			return got.first, got.end
		}
	}
	return 0, 0
}

// Kinds of notes between a rank and a thief on another host.
const (
	noteAsk  = 1 + iota // what has the receiver left?
	noteTell            // the answer: a Rank
	noteTake            // the sender wants microbatches
	noteGive            // the answer: a range of positions
)

// note is a message between ranks of different hosts about a try at a step.
type note struct {
	kind byte
	try  uint32 // number of the try
	seq  uint32 // number of a take or ask of its sender in the session; an answer returns it
	// rank is the rank that is left to compute for noteTell, and the thief for noteTake.
	rank Rank
	// latency and most are for noteTake: the time of the theft, and the most microbatches to take.
	latency int64
	most    int
	// first and end are the range for noteGive.
	first, end int
}

// noteSize is the length of an encoded note.
const noteSize = 1 + 2*4 + 3*4 + 2*8 + 8 + 3*4

// errNote is the error of decodeNote.
var errNote = errors.New("no note about stolen microbatches")

// encode encodes a note.
func (n *note) encode() []byte {
	b := binary.LittleEndian.AppendUint32([]byte{n.kind}, n.try)
	b = binary.LittleEndian.AppendUint32(b, n.seq)
	for _, v := range []int{n.rank.Left, n.rank.Kept, n.rank.Under} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	for _, v := range []int64{n.rank.Running, n.rank.Pace, n.latency} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range []int{n.most, n.first, n.end} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// decodeNote decodes a note of another process: an error means that it is none. Numbers and times are
// within bounds, so that they overflow nothing.
func decodeNote(b []byte) (n note, err error) {
	if len(b) != noteSize || b[0] < noteAsk || b[0] > noteGive {
		return note{}, errNote
	}
	n = note{kind: b[0], try: binary.LittleEndian.Uint32(b[1:]), seq: binary.LittleEndian.Uint32(b[5:])}
	b = b[9:]
	for _, v := range []*int{&n.rank.Left, &n.rank.Kept, &n.rank.Under} {
		*v, b = int(binary.LittleEndian.Uint32(b)&Most), b[4:]
	}
	for _, v := range []*int64{&n.rank.Running, &n.rank.Pace, &n.latency} {
		*v, b = int64(binary.LittleEndian.Uint64(b)&mostTime), b[8:]
	}
	for _, v := range []*int{&n.most, &n.first, &n.end} {
		*v, b = int(binary.LittleEndian.Uint32(b)&Most), b[4:]
	}
	return n, nil
}
