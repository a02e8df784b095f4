package spec

import (
	"time"
)

// Invitation describes the limits of a ticket.
type Invitation struct {
	Valid time.Duration // 1 s to 10 years
	Uses  int           // number of peers that the ticket admits, 0 for any number
}

// Ticket lets peers of other hosts and users join a job.
type Ticket struct {
	Text string `json:"text"` // one word, for a command line
	ID   string `json:"id"`   // the name for Revoke; it admits nobody
	Job  string `json:"job"`
	// Expires is the time from which the ticket admits nobody, by the clocks of the members.
	Expires time.Time `json:"expires"`
	// Note is a remark about this ticket for people, or "".
	Note string `json:"note,omitempty"`
	// Open reports whether the peers of the job listen on the network.
	Open bool `json:"open,omitempty"`
}
