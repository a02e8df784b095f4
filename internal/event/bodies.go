package event

import (
	"encoding/json"
	"fmt"
)

// View says who is in from now on.
type View struct {
	Members []string `json:"members"` // short IDs in rank order
	Voters  []string `json:"voters"`
	Reason  string   `json:"reason"` // start, join, leave, lost, resize, merge, forced
}

// Name returns "view".
func (View) Name() string { return "view" }

// Step reports a committed step once it is stable.
type Step struct {
	Attempt      int      `json:"attempt"`
	Microbatches [][2]int `json:"microbatches"`  // [first, end) of those this peer contributed
	ShareSamples int      `json:"share_samples"` // samples this peer contributed
	Samples      int      `json:"samples"`       // samples of all peers
	Loss         float64  `json:"loss"`          // mean over the samples of all peers
	Digest       string   `json:"digest"`        // of the parameters after the step
	Recomputed   int      `json:"recomputed"`    // microbatches computed a second time
	ComputeMS    float64  `json:"compute_ms"`
	CommMS       float64  `json:"comm_ms"`
	StepMS       float64  `json:"step_ms"`
	Of           int64    `json:"of,omitempty"` // steps of the whole job, if known
}

// Name returns "step".
func (Step) Name() string { return "step" }

// Lost says that a peer is gone without having left.
type Lost struct {
	Who      string  `json:"who"`
	Cause    string  `json:"cause"` // exit, reset, silent, stalled, unreachable
	DetectMS float64 `json:"detect_ms"`
}

// Name returns "lost".
func (Lost) Name() string { return "lost" }

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
	Kind      string `json:"kind"` // shm, unix, direct, p2p, relay
	Addr      string `json:"addr"`
	Encrypted bool   `json:"encrypted"`
}

// Name returns "path".
func (Path) Name() string { return "path" }

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
