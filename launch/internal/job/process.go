package job

import "time"

// End is how a process has ended.
type End int

// The ends, in the order of their certainty.
const (
	Complete End = iota // it had the result
	Left                // it was asked to leave, by whomever
	Released            // it was not needed: it had got Finish or Abort, or the job refused it
	GaveUp              // status StatusGaveUp: too few peers were left
	Died                // killed by a signal, or lost with its host
	Broke               // it failed by itself
	Unclosed            // status 0 in a group, without a result and without a leave
	Plain               // status 0 without a group
)

// String returns the words for e.
func (e End) String() string {
	return [...]string{"complete", "left", "released", "gave up", "died", "broke", "unclosed", "plain"}[e]
}

// StatusGaveUp is the exit status of a process, and of the launcher, if too few peers were left.
const StatusGaveUp = 75

// process is an incarnation of a seat.
type process struct {
	seat, program int
	ids           []ID // the last one is the present one
	greeted       bool // it waits, or has waited, for an answer
	answered      bool // its last hello has its answer
	told          bool // it knows members, so it gets every death
	member        bool // of the generation
	generation    int
	entered       bool // it has reported a view itself
	word          word
	released      bool          // it had Finish or Abort
	survived      time.Duration // when a later view did without it; 0: never
	dying         bool          // its exit follows
	killed        bool          // by this launcher
	asked         time.Duration // when this launcher asked it to leave; 0: never
	halt          halt
	begun         time.Duration
	out           time.Duration // when it was a member no more: it has left, or ended
	exit          *Exit
}

// halt is what is known of a process that is stopped by a signal. It is zero for one that runs.
type halt struct {
	since, seen time.Duration // since when it is stopped, and when that was seen last
	holdsUp     bool          // members wait for it
}

// word is what the process, or another about it, has said of its end.
type word struct {
	left, kicked, refused, gaveUp, done bool
	closed                              bool   // the program has closed its group
	mistake                             bool   // of the program, which the process has found
	digest                              string // of its result
	blames                              ID     // the peer that its mistake names
}

func (p *process) live() bool { return p.exit == nil }

// id returns the present ID, and "" before the first hello.
func (p *process) id() ID {
	if len(p.ids) == 0 {
		return ""
	}
	return p.ids[len(p.ids)-1]
}

// finished tells whether p has the result, or has ended as a program without a result ends.
func (p *process) finished() bool {
	left := p.word.left || p.word.kicked || p.asked > 0
	return p.word.done || p.word.closed && p.told && !p.live() && p.exit.Code == 0 && !left
}

// endedWell tells whether p ended with status 0, or by the signal that asked it to leave.
func (p *process) endedWell() bool {
	return p.exit.Code == 0 && p.exit.Signal == 0 || p.exit.Signal != 0 && p.exit.Signal != kill && p.asked > 0
}

// kill is the number of SIGKILL, by which no process is asked to leave.
const kill = 9

// end tells how p has ended. Only facts about p decide, so the order of reports does not matter.
func (p *process) end() End {
	byItself := p.exit.Code > 0 && p.exit.Signal == 0 && !p.exit.Lost
	switch {
	case p.word.done && !byItself:
		return Complete
	case byItself && p.word.mistake:
		return Broke // also if it was asked meanwhile
	case (p.word.left || p.word.kicked || p.asked > 0) && !p.word.done:
		return Left
	case (p.released || p.word.refused) && !p.word.done:
		return Released
	case p.exit.Code == StatusGaveUp, p.word.gaveUp && byItself:
		return GaveUp
	case p.exit.Signal != 0, p.exit.Lost:
		return Died
	case byItself:
		return Broke
	case p.finished():
		return Complete
	case p.told:
		return Unclosed
	}
	return Plain
}
