package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/spec"
)

// DecodeReply decodes the answer to a request. An empty answer is an error.
func DecodeReply(b []byte) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(b, &r); err != nil {
		return Reply{}, fmt.Errorf("decode reply: %w", err)
	}
	if r.Error != "" {
		return Reply{}, errors.New(r.Error)
	}
	if r.Status == nil && !r.Stopping && r.Scaling == "" && r.Ticket == nil && r.Done == "" && r.Snapshot == nil && r.Next == 0 && r.Record == nil && r.Saved == nil {
		return Reply{}, errors.New("decode reply: the reply is empty")
	}
	return r, nil
}

const (
	MaxRequest = 4 << 10  // maximum length of a request line in bytes
	MaxReply   = 16 << 20 // maximum length of an answer in bytes
	// The range of a ticket's validity.
	MinValid, MaxValid = time.Second, 10 * 365 * 24 * time.Hour
)

// Request is a request on a control socket.
type Request struct {
	Request string `json:"request"` // status, stop, scale, ticket, refresh, revoke, kick, dead, watch, events, record or checkpoint
	// Peers is the number of peers that scale asks for: in the whole job, or on Host.
	Peers int    `json:"peers,omitempty"`
	Host  string `json:"host,omitempty"`
	// ValidMS is the validity of a new ticket, in milliseconds.
	ValidMS int64 `json:"valid_ms,omitempty"`
	// Uses is the number of peers that a ticket admits, 0 for any number.
	Uses uint64 `json:"uses,omitempty"`
	// Ticket is the text of the ticket to refresh, or the text or ID of the ticket to revoke.
	Ticket string `json:"ticket,omitempty"`
	// Peer is the peer to kick. In a record from a launcher it is the short ID of a peer that has failed.
	Peer string `json:"peer,omitempty"`
	// Dead are IDs of peers that another launcher knows to be dead.
	Dead []elastic.ID `json:"dead,omitempty"`
	// Paths asks for the paths of the peer in status.
	Paths bool `json:"paths,omitempty"`
	// Since leaves the points of series out of watch that a snapshot up to this step has. For events it is Reply.Next of the
	// answer before, and 0 for those from now on. For checkpoint it is Saved.Since of the answer before, and 0 for a new wish.
	Since int64 `json:"since,omitempty"`
	// Local restricts a ticket to this host: the job stays closed to other hosts.
	Local bool `json:"local,omitempty"`
}

// Reply is the answer to a request. Exactly one field is set; Grace and PIDs go with Stopping, Parts and Launcher with Snapshot, and Events with Next.
type Reply struct {
	Status   *spec.Status `json:"status,omitempty"`
	Stopping bool         `json:"stopping,omitempty"` // the peer, or all peers of the launcher, are about to end
	// Grace is the time that the peer gets to end; 0 if it is unknown.
	Grace time.Duration `json:"grace,omitempty"`
	// PIDs has the process IDs of the launcher's peers, which it asks to end.
	PIDs    []int        `json:"pids,omitempty"`
	Scaling string       `json:"scaling,omitempty"` // description of the launcher's action
	Ticket  *spec.Ticket `json:"ticket,omitempty"`
	Done    string       `json:"done,omitempty"` // description of the effect of revoke or kick
	// Snapshot is what a launcher knows of the job, and Parts, by the names of their launchers, what those of other members
	// know. Launcher is its own name.
	Snapshot *timeline.Snapshot       `json:"snapshot,omitempty"`
	Parts    map[string]timeline.Part `json:"parts,omitempty"`
	Launcher string                   `json:"launcher,omitempty"`
	// Events are events of a launcher, and Next is Request.Since for those after them, at least 1.
	Events []json.RawMessage `json:"events,omitempty"`
	Next   int64             `json:"next,omitempty"`
	// Record has the last calls of the peer.
	Record *flight.Record `json:"record,omitempty"`
	// Saved tells what has become of the wish for a checkpoint.
	Saved *wish.Saved `json:"saved,omitempty"`
	Error string      `json:"error,omitempty"`
}

// DecodeRequest decodes a request line and checks the values that the request uses.
func DecodeRequest(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, fmt.Errorf("launch: decode request: %w", err)
	}
	switch {
	case r.Request == "scale" && (r.Peers < 0 || r.Peers < 1 && r.Host == "" || r.Peers > spec.MaxPeers):
		return Request{}, fmt.Errorf("launch: decode request: %d peers: want 1 to %d", r.Peers, spec.MaxPeers)
	case r.Request == "ticket" && (r.ValidMS < MinValid.Milliseconds() || r.ValidMS > MaxValid.Milliseconds()):
		return Request{}, fmt.Errorf("launch: decode request: ticket valid for %d ms: want %v to %v", r.ValidMS, MinValid, MaxValid)
	case r.Request == "dead" && len(r.Dead) > MaxDead:
		return Request{}, fmt.Errorf("launch: decode request: %d dead peers: want at most %d", len(r.Dead), MaxDead)
	}
	return r, nil
}

// MaxDead bounds the IDs in a request.
const MaxDead = 40

// LocalTicket is the validity of a ticket that joins a job on the same host. The launcher that
// holds the ticket may need it to restart a peer at any time.
const LocalTicket = MaxValid
