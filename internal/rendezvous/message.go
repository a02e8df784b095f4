package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// What a launcher asks another.
const (
	askStage  = "stage"
	askClaim  = "claim"  // may I start the job?
	askTicket = "ticket" // let me in
)

// question is what one launcher sends, answer what it gets.
type question struct {
	From candidate `json:"from"`
	Ask  string    `json:"ask"`
}

type answer struct {
	From    candidate `json:"from"`
	Stage   stage     `json:"stage"`
	Granted bool      `json:"granted,omitempty"` // to askClaim
	Ticket  string    `json:"ticket,omitempty"`  // to askTicket
	Why     string    `json:"why,omitempty"`     // there is no ticket
}

const (
	// maxMessage is the longest question or answer, in bytes. A ticket has at most half of that.
	maxMessage = 64 << 10
	// maxName is the longest name of a host or ID, in bytes.
	maxName = 255
)

// errMessage: another version of elrun, as only holders of the key are listened to.
var errMessage = errors.New("it speaks as no elrun of this version does")

// read reads a question or an answer.
func read(r io.Reader, m interface{ check() error }) error {
	if err := json.NewDecoder(io.LimitReader(r, maxMessage)).Decode(m); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	return m.check()
}

// check reports what no launcher would send.
func (q *question) check() error {
	if q.Ask != askStage && q.Ask != askClaim && q.Ask != askTicket {
		return errMessage
	}
	return q.From.check()
}

// check reports what no launcher would send.
func (a *answer) check() error {
	if a.Stage != seeking && a.Stage != running && a.Stage != finished {
		return errMessage
	}
	return a.From.check()
}

// check reports a candidate that cannot be.
func (c candidate) check() error {
	if c.ID == "" || len(c.ID) > maxName || len(c.Name) > maxName {
		return errMessage
	}
	return nil
}
