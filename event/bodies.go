package event

import (
	"encoding/json"
	"fmt"
)

// View says who is in from now on.
type View struct {
	Members []string `json:"members"` // short IDs in rank order
	Voters  []string `json:"voters"`
	Reason  string   `json:"reason"` // start, join, leave, lost, kick, forced, vote, grant, renew
}

// Name returns "view".
func (View) Name() string { return "view" }

// Step reports a committed step once it is stable.
type Step struct {
	Attempt      int      `json:"attempt"`
	Microbatches [][2]int `json:"microbatches"`   // [first, end) of those this peer contributed
	ShareSamples int      `json:"share_samples"`  // samples this peer contributed
	Samples      int      `json:"samples"`        // samples of all peers
	Loss         float64  `json:"loss,omitempty"` // mean over the samples of all peers; left out where it is not known
	Digest       string   `json:"digest"`         // of the parameters after the step
	Recomputed   int      `json:"recomputed"`     // microbatches computed a second time
	ComputeMS    float64  `json:"compute_ms"`
	CommMS       float64  `json:"comm_ms"`
	StepMS       float64  `json:"step_ms"`
	PredictedMS  float64  `json:"predicted_ms,omitempty"` // what ComputeMS was expected to be when the share was decided, if known
	Of           int64    `json:"of,omitempty"`           // steps of the whole job, if known
	GradNorm     float64  `json:"grad_norm,omitempty"`    // of the mean gradient of this peer's samples, if known
	NoiseScale   float64  `json:"noise_scale,omitempty"`  // samples; the same at all peers that were there before, if known
	SentBytes    int64    `json:"sent_bytes,omitempty"`   // of gradients, by this peer, if they were compressed
	RawBytes     int64    `json:"raw_bytes,omitempty"`    // that it would have sent without compression
	// OfLost lists what members that are gone have contributed to this step or the one
	// before, and may not have reported themselves; at the last step of a job also the part
	// of the next rank, which no later step could tell of. Several members list the same, so
	// who adds up microbatches takes those of each (peer, step) once.
	OfLost []Contribution `json:"of_lost,omitempty"`
}

// Contribution is the part of a stable step that one member contributed.
type Contribution struct {
	Peer         string   `json:"peer"` // its short ID
	Step         int64    `json:"step"`
	Microbatches [][2]int `json:"microbatches"` // [first, end)
}

// Name returns "step".
func (Step) Name() string { return "step" }

// Shares says how many microbatches each rank computes from the event's step on. One
// member of each launcher writes it.
type Shares struct {
	Old    []int  `json:"old"` // per rank of the session before; empty at the start
	New    []int  `json:"new"` // per rank
	Reason string `json:"reason"`
}

// Name returns "shares".
func (Shares) Name() string { return "shares" }

// Order says in which order the ring goes round from the event's step on. One member of
// each launcher writes it.
type Order struct {
	Order  []int   `json:"order"`                // ranks
	Before float64 `json:"before_mbs,omitempty"` // MB/s of the slowest link of the order before, if there was one
	After  float64 `json:"after_mbs,omitempty"`  // of the slowest link now, if anything is known
	Reason string  `json:"reason"`
}

// Name returns "order".
func (Order) Name() string { return "order" }

// Lost says that a peer is gone without having left.
type Lost struct {
	Who      string  `json:"who"`
	Cause    string  `json:"cause"` // exit, reset, silent, stalled, unreachable; empty if only others know it
	DetectMS float64 `json:"detect_ms"`
	LimitMS  float64 `json:"limit_ms,omitempty"` // that a silent or unreachable peer has exceeded
}

// Name returns "lost".
func (Lost) Name() string { return "lost" }

// Join says that a peer was let in, or, from the peer itself, that it is level.
type Join struct {
	Who    string  `json:"who"`
	Reason string  `json:"reason"`
	Bytes  int64   `json:"bytes,omitempty"` // of state that was moved
	MS     float64 `json:"ms,omitempty"`    // that it took
}

// Name returns "join".
func (Join) Name() string { return "join" }

// Leave says that a peer has left by agreement.
type Leave struct {
	Who    string `json:"who"`
	Reason string `json:"reason"` // asked, kicked, or stalled: it was to make way
}

// Name returns "leave".
func (Leave) Name() string { return "leave" }

// Parked says that a peer is kept waiting: it cannot take part yet.
type Parked struct {
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "parked".
func (Parked) Name() string { return "parked" }

// Fenced says that a peer was put out while it still runs; its state is void.
type Fenced struct {
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "fenced".
func (Fenced) Name() string { return "fenced" }

// Forged says that a member gave a newcomer another state than most members have. It was
// refused, and came from another member.
type Forged struct {
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "forged".
func (Forged) Name() string { return "forged" }

// Audit says that members have computed a member's part of a step again, and what came of it
// (trainer.Config.Audit).
type Audit struct {
	Who    []string `json:"who"` // those whose result differs from that of most, or both if nobody can tell
	Out    bool     `json:"out"` // they are put out
	For    int      `json:"for"` // members that come to one result
	Of     int      `json:"of"`  // members that could compute it
	Reason string   `json:"reason,omitempty"`
}

// Name returns "audit".
func (Audit) Name() string { return "audit" }

// Resync says that a peer has copied what it lacked from others.
type Resync struct {
	Who    string  `json:"who"`
	Reason string  `json:"reason"`
	Bytes  int64   `json:"bytes"`
	MS     float64 `json:"ms"`
	Began  bool    `json:"began,omitempty"` // with another state than the others, before any step
}

// Name returns "resync".
func (Resync) Name() string { return "resync" }

// Mismatch says that members have registered different settings, so that there is no job.
type Mismatch struct {
	Reason string `json:"reason"` // who differs, in what, and both values
}

// Name returns "mismatch".
func (Mismatch) Name() string { return "mismatch" }

// Quorum says how a group stands that is too small to go on.
type Quorum struct {
	State   string `json:"state"` // lost, waiting, back, gave-up
	Present int    `json:"present"`
	Needed  int    `json:"needed"`
}

// Name returns "quorum".
func (Quorum) Name() string { return "quorum" }

// Restart says that a launcher has started the peer with the event's index again.
type Restart struct {
	MS float64 `json:"ms"` // from its end
}

// Name returns "restart".
func (Restart) Name() string { return "restart" }

// Checkpoint says that a checkpoint is complete on disk.
type Checkpoint struct {
	Path string  `json:"path"`
	MS   float64 `json:"ms"`
}

// Name returns "checkpoint".
func (Checkpoint) Name() string { return "checkpoint" }

// Stall says that a call or step takes unusually long, and because of whom.
type Stall struct {
	Culprit string  `json:"culprit"` // short IDs, separated by commas
	Phase   string  `json:"phase"`
	What    string  `json:"what"` // bucket or call
	SinceMS float64 `json:"since_ms"`
}

// Name returns "stall".
func (Stall) Name() string { return "stall" }

// Path says how data reaches a peer.
type Path struct {
	Who       string `json:"who"`
	Kind      string `json:"kind"` // shm, unix, direct, p2p, relay, or mem within a process
	Addr      string `json:"addr"`
	Encrypted bool   `json:"encrypted"`
	Why       string `json:"why,omitempty"` // it is no better, if better was tried
}

// Name returns "path".
func (Path) Name() string { return "path" }

// Dropped says that there is a gap here: so many events are missing, since the launcher, or
// the log, did not take them in time.
type Dropped struct {
	Events int `json:"events"`
}

// Name returns "dropped".
func (Dropped) Name() string { return "dropped" }

// Done is a peer's last event of a job that finished.
type Done struct {
	Steps    int64    `json:"steps"`
	Peers    int      `json:"peers"`              // members at the last step
	Accuracy *float64 `json:"accuracy,omitempty"` // on the test set, if reported
	Loss     *float64 `json:"loss,omitempty"`
	SHA256   string   `json:"sha256"` // of the parameters in declaration order
}

// Name returns "done".
func (Done) Name() string { return "done" }

// Line returns the job's last line, without a line end; accuracy and loss appear
// only if they were reported.
func (d Done) Line() string {
	s := fmt.Sprintf("done steps=%d peers=%d", d.Steps, d.Peers)
	if d.Accuracy != nil {
		s += fmt.Sprintf(" accuracy=%.4f", *d.Accuracy)
	}
	if d.Loss != nil {
		s += fmt.Sprintf(" loss=%.6g", *d.Loss)
	}
	return s + " sha256=" + d.SHA256
}

// Other is an event of a kind that this version does not know.
type Other struct {
	Kind string
	Raw  json.RawMessage // the whole line
}

// Name returns the unknown name.
func (o Other) Name() string { return o.Kind }
