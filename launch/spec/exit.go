package spec

import (
	"fmt"
	"syscall"
	"time"
)

// Exit is the end of a peer's process.
type Exit struct {
	Index int // local index
	// PID is the process ID.
	PID    int
	Code   int            // exit status, -1 if a signal ended it
	Signal syscall.Signal // 0 if no signal ended it
	// Asked is set if the peer was asked to leave, by the launcher or by SIGTERM, or has left by
	// Group.Leave; also if it came after the job had finished, and was told so. Its status does not
	// count, and it is not started again. Asked is not set if a SIGTERM came after the peer had
	// reported the result.
	Asked  bool
	Lost   bool           // the connection to its host broke: the process may run on for a moment
	Result bool           // the process had reported the result before its end
	By     syscall.Signal // the signal on which the agent asked the process to leave
	At     time.Time      // when the launcher learned of the end
	Says   string         // what the program has said of its failure, one line; "" for nothing
	// Ran is the time from the start of the process to its end. CPU is the processor time of the process and
	// of its children that have ended, and MaxRSS the most memory that it had, in bytes; 0 if unknown.
	Ran, CPU time.Duration
	MaxRSS   int64
}

// Failed reports whether the process did not end with status 0.
func (e Exit) Failed() bool { return e.Code != 0 }

// String describes the end, as in "exited with status 3", with what the program has said of it.
func (e Exit) String() string {
	if e.Lost {
		return "was lost with the connection to its host"
	}
	if e.Signal != 0 {
		return fmt.Sprintf("was killed by signal %d (%v)", int(e.Signal), e.Signal)
	}
	if e.Says != "" {
		return fmt.Sprintf("exited with status %d: %s", e.Code, e.Says)
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}
