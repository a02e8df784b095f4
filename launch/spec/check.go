package spec

import (
	"fmt"
)

// Level says how much a Check matters.
type Level string

// The levels of a Check.
const (
	OK   Level = "ok"
	Warn Level = "warn" // jobs run, but not as well as they could
	Fail Level = "fail" // jobs cannot run
)

// Check is one finding of Doctor. The tags are the format of elrun doctor --json.
type Check struct {
	Level  Level  `json:"level"`
	Name   string `json:"name"`             // the subject: cores, memory, a host, an address
	Found  string `json:"found"`            // the observation, in words
	Advice string `json:"advice,omitempty"` // empty if there is nothing to do
}

// String returns the check as one line, such as "ok    cores: 2".
func (c Check) String() string {
	s := fmt.Sprintf("%-4s  %s: %s", c.Level, c.Name, c.Found)
	if c.Advice != "" {
		s += "; " + c.Advice
	}
	return s
}
