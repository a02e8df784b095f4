package job

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Config describes the job of one launcher.
type Config struct {
	Peers, Restarts int
	Join            bool // the launcher joins a running job
	// StartTimeout is how long processes wait for the hellos of others before the first view is formed
	// without them. Grace is the time to leave of a process that was asked.
	StartTimeout, Grace time.Duration
}

// The other bounds.
const (
	haltPatience = 2 * time.Second // a newcomer that is stopped so long is killed
	// mistakePatience is how long the loops that a mistake ends have to end by themselves, before the
	// processes are asked to leave.
	mistakePatience = 2 * time.Second
	heraldPause     = 2 * time.Second
	heralds         = 6 // tries to reach the members of other launchers
	quickDeath      = 10 * time.Second
	// A process that dies quickly has hardly done any work. The first quick death of a seat is
	// restarted at once, the next ones after a pause that doubles (exponential backoff).
	firstPause = time.Second
	longPause  = time.Minute
	maxPast    = 1000 // processes that have ended
	forNobody  = -1
	start      = time.Nanosecond // the clock begins here, so that 0 is never
)

// Phase is the phase of a generation.
type Phase int

// The phases.
const (
	Forming  Phase = iota // the first view is not fixed: hellos wait for each other
	Running               // members live, or may live under other launchers
	Finished              // a member has the result: hellos get Finish
	Failed                // no group can be formed or go on: hellos get Abort
)

// String returns the word for p.
func (p Phase) String() string { return [...]string{"forming", "running", "finished", "failed"}[p] }

// generation has the facts of a generation.
type generation struct {
	number, program int // program: which program of the command it runs, from 1
	phase           Phase
	since           time.Duration // when somebody began to wait for the first view; in Failed, since when
	foreign         bool          // a member of another launcher was seen: desertion is never certain again
	mistake         bool          // of the program
	why             Why           // of Failed
	culprit         int           // seat, or forNobody
}

// Job is one launcher's knowledge of its job. New makes one. It is not safe for concurrent use.
type Job struct {
	cfg         Config
	now         time.Duration
	gen         generation
	signal      int
	impatient   bool // the signal came twice
	stopping    bool
	wanted      *Scale // what a user wants; nil: as it is
	seats       map[int]*process
	past        []*process // ended, in the order of their exits
	names       map[ID]*process
	pending     map[int]time.Duration // restarts: seat and due time
	restarts    int                   // left
	quick       map[int]int           // consecutive quick deaths by seat
	unconfirmed []ID                  // dead members that no member of another launcher has confirmed
	obituaries  int                   // number of obituaries so far
	obituaryAt  time.Duration         // the time of the last one
	over        bool
	out         []Output
}

// New returns a job and the outputs that start it.
func New(c Config) (*Job, []Output) {
	j := &Job{
		cfg: c, now: start, restarts: c.Restarts,
		gen:   generation{program: 1, since: start, foreign: c.Join, culprit: forNobody},
		seats: map[int]*process{}, names: map[ID]*process{}, pending: map[int]time.Duration{}, quick: map[int]int{},
	}
	if c.Join {
		j.gen.phase = Running
	}
	for i := range c.Peers {
		j.start(i)
	}
	return j, j.out
}

// Step records a fact and returns all decisions that are due. After Over it returns nothing.
func (j *Job) Step(in Input) []Output {
	if j.out = nil; !j.over {
		in.record(j)
		j.decide()
	}
	return j.out
}

func (j *Job) do(o Output) { j.out = append(j.out, o) }

// living returns the processes that have not ended, by seat.
func (j *Job) living() (out []*process) {
	for _, i := range slices.Sorted(maps.Keys(j.seats)) {
		out = append(out, j.seats[i])
	}
	return out
}

func (j *Job) any(f func(*process) bool) bool { return slices.ContainsFunc(j.living(), f) }

func (j *Job) hasMember() bool { return j.any(func(p *process) bool { return p.member }) }

// ending tells whether the launcher, or the job, was asked to end.
func (j *Job) ending() bool { return j.signal != 0 || j.stopping }

// open tells whether the job takes new processes.
func (j *Job) open() bool {
	return !j.ending() && !j.gen.mistake && (j.gen.phase == Forming || j.gen.phase == Running)
}

// result tells whether p has the result of this generation.
func (j *Job) result(p *process) bool {
	return p.generation == j.gen.number && p.member && p.finished()
}

// hasResult tells whether any process has the result, dead or alive.
func (j *Job) hasResult() bool {
	return slices.ContainsFunc(j.past, j.result) || j.any(j.result)
}

// decide makes all decisions that follow from the facts. It repeats nothing that it has decided.
func (j *Job) decide() {
	if !j.open() {
		clear(j.pending)
	}
	j.advance()
	j.scale()
	for _, p := range j.living() {
		j.answer(p)
		j.press(p)
	}
	j.restart()
	j.tellOthers()
	if len(j.seats)+len(j.pending) == 0 && !j.heralding() {
		j.over = true
		j.do(j.outcome())
	}
}

// advance moves to the phase that follows from the facts.
func (j *Job) advance() {
	member := j.hasMember()
	further := j.any(func(p *process) bool { return p.program > j.gen.program })
	if j.gen.phase == Running {
		switch {
		case j.gen.mistake:
			j.gen.phase, j.gen.why, j.gen.since = Failed, Mistaken, j.now
		case j.hasResult():
			j.gen.phase = Finished
		case !member && !j.gen.foreign && len(j.seats)+len(j.pending) > 0 && !j.ending():
			j.reform(j.gen.program)
		}
	}
	switch {
	case j.gen.phase == Finished && further && !member && !j.gen.foreign:
		j.reform(j.gen.program + 1)
	case j.gen.phase == Forming && member: // a newcomer was admitted by members that have died since
		j.gen.phase = Running
	}
	if j.gen.phase == Forming && j.open() {
		j.form()
	}
}

// reform begins the next generation. A newcomer that knows members may just have been admitted by
// them, so it has to confirm by another hello that it still waits.
func (j *Job) reform(program int) {
	j.gen.phase, j.gen.since, j.gen.program = Forming, j.now, program
	for _, p := range j.living() {
		if p.greeted && p.answered && !p.released && p.program == program {
			p.greeted, p.answered = false, false
			j.do(Hold{p.seat})
		}
	}
}

// form fixes the first view, if all have said hello or have had enough time.
func (j *Job) form() {
	// If nobody is left who runs this program, for example after a crash in all shells, the next one is due.
	if len(j.seats) > 0 && len(j.pending) == 0 && !j.any(func(p *process) bool { return p.program <= j.gen.program }) {
		j.gen.program++
	}
	var ready []*process
	missing := len(j.pending)
	for _, p := range j.living() {
		switch {
		case p.program != j.gen.program, p.asked > 0, p.dying:
		case p.greeted && p.halt.since == 0:
			ready = append(ready, p)
		default:
			missing++
		}
	}
	if len(ready) == 0 {
		j.gen.since = j.now // nobody waits
		return
	}
	if missing > 0 && j.now-j.gen.since <= j.cfg.StartTimeout {
		return
	}
	j.gen.number++
	j.gen.phase = Running
	var first []ID
	for _, p := range ready {
		first = append(first, p.id())
	}
	for _, p := range ready {
		p.member, p.generation, p.answered, p.told = true, j.gen.number, true, true
		j.do(First{p.seat, j.gen.number, first})
	}
}

// answer answers the hello of p, if it has no answer. If the program of p has finished it also ends the
// wait of a newcomer that looks for members.
func (j *Job) answer(p *process) {
	waits := p.greeted && !p.answered
	looks := p.greeted && !p.member && !p.released
	switch {
	// A process of an earlier program was started again, in a command whose first program has finished.
	case looks && (p.program < j.gen.program || j.gen.phase == Finished && p.program == j.gen.program):
		j.release(p, Finish{p.seat})
	case !waits:
	case j.gen.phase == Failed:
		j.release(p, Abort{p.seat, j.gen.why, j.gen.culprit})
	case j.ending():
		j.release(p, Abort{p.seat, Ending, forNobody})
	case j.gen.phase == Running && p.program == j.gen.program:
		p.answered, p.told = true, true
		j.do(Join{p.seat})
		for _, q := range j.past {
			for _, id := range q.ids {
				j.do(Dead{p.seat, id})
			}
		}
	}
}

func (j *Job) release(p *process, o Output) {
	p.answered, p.released = true, true
	j.do(o)
}

// press asks p to leave. It kills p if p is late, or if it is stopped where it holds up others.
func (j *Job) press(p *process) {
	if p.asked == 0 && (j.ending() || p.word.kicked || j.gen.mistake && j.gen.phase == Failed && j.now-j.gen.since >= mistakePatience) {
		j.ask(p)
	}
	late := p.asked > 0 && (j.impatient || j.now-p.asked > j.cfg.Grace)
	halted := p.halt.since > 0 && p.halt.seen == j.now && (p.halt.holdsUp || j.now-p.halt.since > haltPatience && (!p.entered || j.gen.phase != Running))
	if (late || halted) && !p.killed {
		p.killed = true
		j.do(Kill{p.seat})
	}
}

func (j *Job) ask(p *process) {
	p.asked = j.now
	j.do(Ask{p.seat})
}

func (j *Job) start(i int) {
	j.seats[i] = &process{seat: i, program: 1, begun: j.now}
	j.do(Start{i})
}

// scale starts peers in the lowest free seats, or asks some to leave: newcomers first, then the
// highest seats.
func (j *Job) scale() {
	s := j.wanted
	if j.wanted = nil; s == nil {
		return
	}
	if j.gen.phase != Running || !j.open() {
		j.do(Unscaled{j.gen.phase})
		return
	}
	maps.DeleteFunc(j.pending, func(seat int, _ time.Duration) bool { return s.has(seat) }) // they are part of N
	var members, newcomers []*process
	for _, p := range j.living() {
		switch {
		case p.asked > 0, p.dying, !s.has(p.seat):
		case p.member:
			members = append(members, p)
		default:
			newcomers = append(newcomers, p)
		}
	}
	stay := slices.Concat(members, newcomers)
	for i := 0; len(stay) < s.N; i++ {
		if _, due := j.pending[i]; j.seats[i] == nil && !due {
			j.start(i)
			stay = append(stay, j.seats[i])
		}
	}
	for _, p := range slices.Backward(stay[min(s.N, len(stay)):]) {
		j.ask(p)
	}
}

// restart starts the processes that are due.
func (j *Job) restart() {
	for _, i := range slices.Sorted(maps.Keys(j.pending)) {
		if j.pending[i] <= j.now && j.open() {
			delete(j.pending, i)
			j.start(i)
		}
	}
}

// replace records that the program of a seat has ended, and that the next one may say hello.
func (j *Job) replace(old *process, program int) *process {
	p := &process{seat: old.seat, program: program, begun: j.now, asked: old.asked, halt: old.halt}
	j.seats[p.seat] = p
	j.bury(old, Exit{Seat: old.seat})
	return p
}

// announce tells all that know members that the IDs of p are certainly dead.
func (j *Job) announce(p *process) {
	for _, q := range j.living() {
		if q.told && q != p {
			for _, id := range p.ids {
				j.do(Dead{q.seat, id})
			}
		}
	}
}

// bury records the end of a process: its IDs are certainly dead, and its seat may be filled again.
func (j *Job) bury(p *process, e Exit) {
	p.exit = &e
	left := p.out > 0
	p.out = cmp.Or(p.out, j.now)
	j.past = append(j.past, p)
	end := p.end()
	if e.Lost { // only the connection has ended: the members decide
		j.gen.foreign = true
	} else {
		if !p.dying {
			j.announce(p)
		}
		// Also of a newcomer: it may have been admitted without having told. One that was only about to leave
		// may still be a member of a view.
		if !left && end != Complete && end != Released {
			j.unconfirmed = append(j.unconfirmed, p.ids...)
		}
	}
	out := Ended{Seat: p.seat, End: end}
	switch {
	case (end == Died || end == Broke && !p.word.done) && j.restarts > 0 && j.open():
		j.restarts--
		out.Again, out.Pause = true, j.pause(p)
		j.pending[p.seat] = j.now + out.Pause
	// Before the first view a program that fails by itself fails the job, as its command line is likely
	// to be wrong. One that was killed leaves its seat empty, as it would a moment later.
	case j.gen.phase == Forming && j.gen.number == 0 && (end == Broke || end == Plain):
		j.gen.phase, j.gen.why, j.gen.culprit = Failed, EndedEarly, p.seat
	}
	j.do(out)
	j.prune()
}

// pause returns how long the restart of p waits.
func (j *Job) pause(p *process) time.Duration {
	if j.now-p.begun >= quickDeath {
		j.quick[p.seat] = 0
		return 0
	}
	j.quick[p.seat]++
	if n := j.quick[p.seat]; n > 1 {
		return min(longPause, firstPause<<min(n-2, 10))
	}
	return 0
}

// prune forgets the oldest ends, but for those that have a result.
func (j *Job) prune() {
	for i := 0; len(j.past) > maxPast && i < len(j.past); {
		p := j.past[i]
		if j.result(p) {
			i++
			continue
		}
		for _, id := range p.ids {
			delete(j.names, id)
		}
		j.past = slices.Delete(j.past, i, i+1)
	}
}

// tellOthers tells the members of other launchers which peers are dead, if no own member can.
func (j *Job) tellOthers() {
	if j.heralding() && (j.obituaries == 0 || j.now-j.obituaryAt >= heraldPause) {
		j.obituaries, j.obituaryAt = j.obituaries+1, j.now
		j.do(Obituary{slices.Clone(j.unconfirmed)})
	}
}

func (j *Job) heralding() bool {
	return j.gen.foreign && len(j.unconfirmed) > 0 && j.signal == 0 && j.obituaries < heralds && !j.hasMember()
}
