package flight

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Version is the version of the JSON form of a Record and of a Job. Fields may be added without a new version.
const Version = 1

// Limits of what Decode accepts.
const (
	maxRecord  = Calls + maxHeld
	maxMembers = 1 << 16
	maxPeers   = 1 << 16
	maxError   = 300
)

// Record is the flight record of one peer at one time.
type Record struct {
	Version int       `json:"version"`
	Peer    string    `json:"peer"` // short ID
	Index   int       `json:"index"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Taken   time.Time `json:"taken"`
	Step    int64     `json:"step"`            // last committed step, 0 if there is none
	State   string    `json:"state,omitempty"` // of the peer, as in elrun status
	// Needs is set while the group has too few members to go on.
	Needs    bool      `json:"needs_members,omitempty"`
	Sessions []Session `json:"sessions"` // the latest last
	Total    uint64    `json:"total"`    // number of calls so far, the overwritten ones included
	Calls    []Call    `json:"calls"`    // in the order of their begin
	Stacks   string    `json:"stacks,omitempty"`
	// Ended is set if the process has ended, and others have recovered its calls.
	Ended bool `json:"ended,omitempty"`
}

// Session is one membership, as a peer has entered it. Ranks are ranks of the transport.
type Session struct {
	Epoch   uint64   `json:"epoch"`
	Rank    int      `json:"rank"`    // of the peer
	Members []string `json:"members"` // short IDs by rank
	Groups  []Group  `json:"groups,omitempty"`
}

// Group has the ranks of a communicator from Split or Dup.
type Group struct {
	Comm  uint64 `json:"comm,string"`
	Ranks []int  `json:"ranks"`
}

// Call is a call of a peer.
type Call struct {
	Number     uint64    `json:"number"` // in the order of the begin at the peer, from 1
	Epoch      uint64    `json:"epoch"`
	Comm       uint64    `json:"comm,string"` // 0 is the communicator with which a session starts
	Seq        uint32    `json:"seq"`         // number of the call in its communicator, from 1; the tag of a Send or Recv
	Kind       string    `json:"kind"`
	What       string    `json:"what"` // type, length, reduction, root and algorithm
	Count      uint64    `json:"count,omitempty"`
	Bytes      uint64    `json:"bytes,omitempty"`
	Segment    uint32    `json:"segment,omitempty"`
	For        string    `json:"for,omitempty"` // purpose
	Background bool      `json:"background,omitempty"`
	Point      *Point    `json:"point,omitempty"` // set for a Send or Recv
	Began      time.Time `json:"began"`
	MS         float64   `json:"ms"` // from the begin to the end, or until the record was taken
	Open       bool      `json:"open,omitempty"`
	Wait       *Waiting  `json:"wait,omitempty"` // the last wait of 200 ms or more
	Error      string    `json:"error,omitempty"`
	// Failure is the kind of the error, one of the Failure constants, and Blames has the ranks that it names.
	Failure string `json:"failure,omitempty"`
	Blames  []int  `json:"blames,omitempty"`
}

// Point describes a Send or Recv.
type Point struct {
	Peer  int  `json:"peer"` // rank at the other end, -1 for any or none
	Sends bool `json:"sends,omitempty"`
}

// Waiting says for whom a call waits or has waited.
type Waiting struct {
	For      int     `json:"for"` // the first rank for which it waits, -1 for none
	QuietMS  float64 `json:"quiet_ms"`
	Culprits []int   `json:"culprits,omitempty"` // as the call's watchdog has reported them
	Phase    string  `json:"phase,omitempty"`
}

// Job is what is known of a job beside the records: above all of peers that have not answered.
type Job struct {
	Version int       `json:"version"`
	Job     string    `json:"job"`
	Reason  string    `json:"reason,omitempty"` // why the records were taken
	Taken   time.Time `json:"taken"`
	Peers   []Peer    `json:"peers"`
}

// Peer is what others know of a peer. Fields without a known value are empty.
type Peer struct {
	ID     string  `json:"id"` // short
	Index  int     `json:"index"`
	Host   string  `json:"host,omitempty"`
	PID    int     `json:"pid,omitempty"`
	Rank   int     `json:"rank"`
	State  string  `json:"state,omitempty"`
	Step   int64   `json:"step,omitempty"`    // its last known step
	SeenMS float64 `json:"seen_ms,omitempty"` // time since its last message to another peer
	// Halted is set if its process, or the program of its process, is stopped by a signal.
	Halted   bool   `json:"halted,omitempty"`
	Answered bool   `json:"answered"`
	Error    string `json:"error,omitempty"` // why it has not answered
	// End says how its process has ended, as in "killed by signal 9"; empty if it has not.
	End string `json:"end,omitempty"`
}

// DecodeRecord decodes the JSON form of a Record, and checks everything on which Judge relies: the text may come from
// anywhere.
func DecodeRecord(text []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("flight: decode record: %w", err)
	}
	if err := r.Check(); err != nil {
		return Record{}, fmt.Errorf("flight: decode record: %w", err)
	}
	return r, nil
}

// Check returns the first reason for which DecodeRecord refuses a Record.
func (r *Record) Check() error {
	switch {
	case r.Version != Version:
		return fmt.Errorf("version %d, want %d: read it with the elrun that wrote it", r.Version, Version)
	case len(r.Calls) > maxRecord || len(r.Sessions) > maxSessions:
		return fmt.Errorf("%d calls in %d sessions, want at most %d in %d", len(r.Calls), len(r.Sessions), maxRecord, maxSessions)
	}
	for _, s := range r.Sessions {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns the reason for which a Session is refused.
func (s *Session) check() error {
	n := len(s.Members)
	if n > maxMembers || s.Rank < 0 || s.Rank >= n {
		return fmt.Errorf("session %d: rank %d of %d members", s.Epoch, s.Rank, n)
	}
	if len(s.Groups) > maxGroups {
		return fmt.Errorf("session %d: %d communicators, want at most %d", s.Epoch, len(s.Groups), maxGroups)
	}
	for _, g := range s.Groups {
		for _, rank := range g.Ranks {
			if rank < 0 || rank >= n || len(g.Ranks) > n {
				return fmt.Errorf("session %d: communicator %d has rank %d of %d members", s.Epoch, g.Comm, rank, n)
			}
		}
	}
	return nil
}

// DecodeJob decodes the JSON form of a Job.
func DecodeJob(text []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return Job{}, fmt.Errorf("flight: decode what is known of a job: %w", err)
	}
	if j.Version != Version || len(j.Peers) > maxPeers {
		return Job{}, fmt.Errorf("flight: decode what is known of a job: version %d with %d peers, want version %d with at most %d", j.Version, len(j.Peers), Version, maxPeers)
	}
	return j, nil
}

// The kinds of errors of calls.
const (
	FailureOwn      = "own"      // of this rank alone: a panic, a bad argument, or the end of its context
	FailureMismatch = "mismatch" // ranks make different calls
	FailureDeadlock = "deadlock" // calls wait for each other
	FailurePeer     = "peer"     // a rank is lost
	FailureAbort    = "abort"    // another rank has revoked
)

// clip cuts a text to most bytes of valid UTF-8, if it is longer, and marks the cut with dots.
func clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
