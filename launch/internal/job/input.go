package job

import (
	"cmp"
	"slices"
	"time"
)

// ID is the identity of a peer. It never returns once it is dead.
type ID string

// Input is a fact. The inputs of one process come in the order in which it sent them, and its Exit
// is the last one. An input about a process that is not there does nothing.
type Input interface{ record(j *Job) }

// Tick is the time since the start of the launcher. It comes at least every second.
type Tick struct{ Now time.Duration }

func (t Tick) record(j *Job) { j.now = max(j.now, t.Now) }

// Hello says that a process waits for an answer, for the first time or after Hold.
type Hello struct {
	Seat    int
	ID      ID
	Program int // which program of the command it is, from 1
}

func (h Hello) record(j *Job) {
	p := j.seats[h.Seat]
	if p == nil {
		return
	}
	if h.Program > p.program {
		p = j.replace(p, h.Program)
	}
	if !slices.Contains(p.ids, h.ID) {
		p.ids = append(p.ids, h.ID)
	}
	p.greeted, p.answered, j.names[h.ID] = true, false, p
}

// Renew says that a peer has another ID, because the others go on without its old one.
type Renew struct {
	Seat int
	ID   ID
}

func (r Renew) record(j *Job) {
	p := j.seats[r.Seat]
	if p == nil || len(p.ids) == 0 {
		return
	}
	j.announce(p)
	p.ids = append(p.ids, r.ID)
	p.member, p.entered, j.names[r.ID] = false, false, p
	if p.answered && !p.released && j.gen.phase == Running {
		j.do(Pass(r))
	}
}

// View says that a peer has entered a view with these members.
type View struct {
	Seat    int
	Members []ID
}

func (v View) record(j *Job) {
	if p := j.seats[v.Seat]; p != nil {
		p.entered = true
	}
	for _, p := range j.past {
		if p.survived == 0 && p.member && p.generation == j.gen.number && !slices.Contains(v.Members, p.id()) {
			p.survived = j.now
		}
	}
	for _, id := range v.Members {
		switch p := j.names[id]; {
		case p == nil:
			j.gen.foreign = true
		case p.live() && p.id() == id:
			p.member, p.generation = true, j.gen.number
		}
	}
}

// Foreign says that a peer of another launcher is about to be admitted.
type Foreign struct{}

func (Foreign) record(j *Job) { j.gen.foreign = true }

// Leave says that a peer has left by agreement: it was asked, or the members have put it out by a
// request. Soon says that it is about to leave, because it was asked.
type Leave struct {
	Who          ID
	Kicked, Soon bool
}

func (l Leave) record(j *Job) {
	p := j.names[l.Who]
	if p == nil {
		return
	}
	p.word.left, p.word.kicked = true, p.word.kicked || l.Kicked
	if !l.Soon && p.live() {
		p.out = j.now
	}
}

// Done says that a peer has the result. Digest is equal at all peers with the same result, and empty
// for a loop that has none to compare.
type Done struct {
	Seat   int
	Digest string
}

func (d Done) record(j *Job) {
	if p := j.seats[d.Seat]; p != nil { // only a member can have it
		p.word.done, p.word.digest = true, d.Digest
		p.member, p.generation = true, j.gen.number
	}
}

// Closed says that the program of a member has closed its group. If it then ends with status 0 it has
// finished, although it has no result to report.
type Closed struct{ Seat int }

func (c Closed) record(j *Job) {
	if p := j.seats[c.Seat]; p != nil {
		p.word.closed, p.member, p.generation = true, true, j.gen.number
	}
}

// Mistake says that the loop of a peer has ended by a mistake of the program, which is wrong at all
// peers.
type Mistake struct {
	Seat int // -1 if the launcher itself has found it, from the ends of processes
	Who  ID  // the peer that its error names; empty if none
}

func (m Mistake) record(j *Job) {
	p := j.seats[m.Seat]
	j.gen.mistake = j.gen.mistake || p != nil || m.Seat < 0
	if p != nil {
		p.word.mistake, p.word.blames = true, m.Who
	}
}

// TooFew says that a peer has found too few peers for too long.
type TooFew struct{ Seat int }

func (t TooFew) record(j *Job) {
	if p := j.seats[t.Seat]; p != nil {
		p.word.gaveUp = true
	}
}

// Refused says that the job refuses a newcomer, or that the newcomer knows that the job has ended.
type Refused struct{ Seat int }

func (r Refused) record(j *Job) {
	if p := j.seats[r.Seat]; p != nil {
		p.word.refused = true
	}
}

// Gone says that the process that said hello has ended, and its command goes on. Its status is known
// to the command only.
type Gone struct{ Seat int }

func (g Gone) record(j *Job) {
	if p := j.seats[g.Seat]; p != nil && p.greeted {
		j.replace(p, p.program+1)
	}
}

// Dying says that the kernel has begun to end a process, which may take long if it holds much memory.
// Its Exit follows.
type Dying struct{ Seat int }

func (d Dying) record(j *Job) {
	if p := j.seats[d.Seat]; p != nil && !p.dying {
		p.dying = true
		j.announce(p)
	}
}

// Exit says that the process of a seat has ended. Code is its exit status unless Signal is set, and
// Lost says that only the connection to its host has ended. Asked says that the agent of its host had
// asked it to leave.
type Exit struct {
	Seat, Code, Signal int
	Lost, Asked        bool
}

func (e Exit) record(j *Job) {
	if p := j.seats[e.Seat]; p != nil {
		delete(j.seats, e.Seat)
		p.word.left = p.word.left || e.Asked
		j.bury(p, e)
	}
}

// Halted says whether a process is stopped by a signal. It is repeated at least every second while the
// process is stopped: a process that goes on is not killed for what is known from before.
type Halted struct {
	Seat int
	On   bool
}

func (h Halted) record(j *Job) {
	p := j.seats[h.Seat]
	switch {
	case p == nil:
	case !h.On:
		p.halt = halt{}
	default:
		p.halt.since, p.halt.seen = cmp.Or(p.halt.since, j.now), j.now
	}
}

// Suspect says that members do not hear a member. It comes after the Halted of the same look at the
// process.
type Suspect struct{ Who ID }

func (s Suspect) record(j *Job) {
	if p := j.names[s.Who]; p != nil && p.live() && p.halt.since > 0 {
		p.halt.holdsUp, p.halt.seen = true, j.now
	}
}

// Signal says that the launcher got a signal that ends the job. The second one ends it at once. The exit
// status has the number of the first one, which is why the job ends.
type Signal struct{ Number int }

func (s Signal) record(j *Job) {
	j.impatient = j.impatient || j.signal != 0
	j.signal = cmp.Or(j.signal, s.Number)
}

// Stop says that a user has asked the job to stop.
type Stop struct{}

func (Stop) record(j *Job) { j.stopping = true }

// Restarts says that N further restarts are allowed.
type Restarts struct{ N int }

func (r Restarts) record(j *Job) { j.restarts += r.N }

// Scale says that a user wants N peers of this launcher, or of one of its hosts.
type Scale struct {
	N int
	// OnHost is set for one host, and Seats then has its seats. Peers on other hosts stay as they are.
	OnHost bool
	Seats  []int
}

func (s Scale) record(j *Job) { j.wanted = &s }

// has tells whether the scale concerns a seat.
func (s Scale) has(seat int) bool { return !s.OnHost || slices.Contains(s.Seats, seat) }

// Told says that a member of another launcher has confirmed the deaths of these peers, or that no
// such member lives.
type Told struct{ IDs []ID }

func (t Told) record(j *Job) {
	j.unconfirmed = slices.DeleteFunc(j.unconfirmed, func(id ID) bool { return slices.Contains(t.IDs, id) })
}
