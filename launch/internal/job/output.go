package job

import "time"

// Output is a decision, to be carried out in the order of the outputs.
type Output interface{ output() }

// Start starts a process in a seat.
type Start struct{ Seat int }

// First answers a hello: the members of the first view of a generation.
type First struct {
	Seat, Generation int
	Members          []ID
}

// Join answers a hello: the peer is a newcomer of a running job.
type Join struct{ Seat int }

// Pass allows a peer with another ID to join again.
type Pass struct {
	Seat int
	ID   ID
}

// Finish answers a hello, or ends the wait of a newcomer: the job has finished.
type Finish struct{ Seat int }

// Abort answers a hello: there is no job that the process could join.
type Abort struct {
	Seat int
	Why  Why
	Who  int // the seat that is the cause, with EndedEarly
}

// Hold takes back Join: the process stops to look for members, and says hello again unless it has
// become a member meanwhile.
type Hold struct{ Seat int }

// Dead tells the process of a seat that a peer is certainly dead.
type Dead struct {
	Seat int
	ID   ID
}

// Ended says how a process has ended, and whether it is started again, after a pause. Pause is 0 for a
// start at once.
type Ended struct {
	Seat  int
	End   End
	Again bool
	Pause time.Duration
}

// Obituary tells the members of other launchers that these peers are certainly dead. The answer is
// Told.
type Obituary struct{ IDs []ID }

// Ask asks a process to leave.
type Ask struct{ Seat int }

// Kill kills a process.
type Kill struct{ Seat int }

// Unscaled answers a Scale that is refused.
type Unscaled struct{ Phase Phase }

// Over ends the launcher. It is the last output.
type Over struct {
	Status  int
	Verdict Verdict
	// Cause has the seat of the first failure in causal order, and is -1 if none is known, or if the
	// failed peer belongs to another launcher.
	Cause int
}

func (Start) output()    {}
func (First) output()    {}
func (Join) output()     {}
func (Pass) output()     {}
func (Finish) output()   {}
func (Abort) output()    {}
func (Hold) output()     {}
func (Dead) output()     {}
func (Ended) output()    {}
func (Obituary) output() {}
func (Ask) output()      {}
func (Kill) output()     {}
func (Unscaled) output() {}
func (Over) output()     {}

// Why is why there is no job to join.
type Why int

// The reasons of Abort.
const (
	Ending     Why = iota // the job was asked to stop
	EndedEarly            // a program ended before all had joined
	Mistaken              // the program has made a mistake
)

// Verdict is what has become of a job.
type Verdict int

// The verdicts.
const (
	JobFinished    Verdict = iota // a member has the result
	JobInterrupted                // by a signal
	JobMistaken                   // the program has made a mistake
	JobDisagrees                  // members have different results
	JobSpoiled                    // it had a result, but a member with the result failed by itself
	JobGaveUp                     // too few peers were left
	JobStopped                    // all members have left on request
	JobPutOut                     // all members of this launcher were put out, and others may go on
	JobUnclosed                   // members ended with status 0 without a result
	JobFailed                     // processes failed
	JobRefused                    // the newcomers were refused
	JobGroupless                  // the programs ended with status 0, and none of them was a member
)

// String returns the words for w.
func (w Why) String() string { return [...]string{"ending", "ended early", "mistaken"}[w] }

// String returns the words for v.
func (v Verdict) String() string {
	return [...]string{
		"finished", "interrupted", "mistaken", "disagrees", "spoiled", "gave up", "stopped", "put out", "unclosed", "failed", "refused", "groupless",
	}[v]
}
