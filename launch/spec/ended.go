package spec

import (
	"time"
)

// Ended is the end of a job as its launcher has seen it.
type Ended struct {
	// Began and At are the times of the job's start and end, by the clock of the launcher's host.
	Began   time.Time `json:"began"`
	At      time.Time `json:"at"`
	Status  int       `json:"status"`           // exit status of the launcher, see Result.Status
	Outcome string    `json:"outcome"`          // finished, stopped (all left as asked), failed, gave up, or interrupted by a signal
	Reason  string    `json:"reason,omitempty"` // one line; "" if nobody failed
	// Result is the job's last line; "" if its peers reported no result.
	Result string `json:"result,omitempty"`
}
