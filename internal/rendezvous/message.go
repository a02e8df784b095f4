package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The kinds of questions.
const (
	askStage  = "stage"  // is the job running or finished?
	askClaim  = "claim"  // may I start the job?
	askTicket = "ticket" // give me a ticket
)

// question is a message to another launcher. The reply is an answer.
type question struct {
	From candidate `json:"from"`
	Ask  string    `json:"ask"`
}

// answer is the reply to a question, with the stage of its sender.
type answer struct {
	From    candidate `json:"from"`
	Stage   stage     `json:"stage"`
	Granted bool      `json:"granted,omitempty"` // reply to askClaim
	Ticket  string    `json:"ticket,omitempty"`  // reply to askTicket
	Why     string    `json:"why,omitempty"`     // why there is no ticket
}

const (
	// maxMessage is the maximum length of a question or answer in bytes. The limit protects against
	// a faulty sender. A ticket has at most half of this length.
	maxMessage = 64 << 10
	// maxName is the maximum length of a host's name or an ID in bytes.
	maxName = 255
)

// errMessage reports an invalid message. The sender of the message has the key, so it runs another
// version of elrun.
var errMessage = errors.New("it runs another version of elrun: use the same version on all hosts")

// read reads a question or an answer of at most maxMessage bytes and checks it.
func read(r io.Reader, m interface{ check() error }) error {
	if err := json.NewDecoder(io.LimitReader(r, maxMessage)).Decode(m); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	return m.check()
}

// check returns errMessage for a question that no launcher of this version sends.
func (q *question) check() error {
	if q.Ask != askStage && q.Ask != askClaim && q.Ask != askTicket {
		return errMessage
	}
	return q.From.check()
}

// check returns errMessage for an answer that no launcher of this version sends.
func (a *answer) check() error {
	if a.Stage != seeking && a.Stage != running && a.Stage != finished {
		return errMessage
	}
	return a.From.check()
}
