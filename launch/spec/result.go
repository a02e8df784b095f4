package spec

import (
	"github.com/elrun/elrun/event"
)

// Result describes how a job ended, as its launcher has seen it.
type Result struct {
	Job   string
	Exits []Exit      // in the order in which the processes ended
	Done  *event.Done // the job's result, if its peers reported one
	// Status is the launcher's exit status. It is 0 when the job finished, even if peers died on
	// the way, or when nothing failed. It is 1 when the program failed, even if the result was
	// reported; StatusQuorum when the group gave up because too few peers were left; and 128 +
	// signal when the job was interrupted.
	Status int
}

// StatusQuorum is the exit status of a launcher, and of a peer, whose group gave up because too
// few peers were left.
const StatusQuorum = 75
