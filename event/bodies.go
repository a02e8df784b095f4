package event

import (
	"encoding/json"
	"fmt"
	"time"
)

// View reports a new view, with its members and voters. Event.Epoch is the epoch of the view.
type View struct {
	Members []string `json:"members"` // short IDs, by rank
	Voters  []string `json:"voters"`  // short IDs of the members whose votes count for a quorum
	Reason  string   `json:"reason"`  // start, join, leave, lost, kick, forced, vote, grant, renew
}

// Name returns "view".
func (View) Name() string { return "view" }

// Decided reports that the members have decided a change of the view that this peer had proposed.
type Decided struct {
	Why string `json:"why"` // the change, the reason of the change, and the rule by which it was decided, with short IDs
}

// Name returns "decided".
func (Decided) Name() string { return "decided" }

// Step reports a committed step, once the step is stable: every member is known to have committed
// it. In a loop of elastic.Group.Steps each microbatch is one sample.
type Step struct {
	Attempt      int      `json:"attempt"`          // number of the attempt that was committed, from 0
	Microbatches [][2]int `json:"microbatches"`     // ranges [first, end) that this peer contributed
	ShareSamples int      `json:"share_samples"`    // samples that this peer contributed
	Samples      int      `json:"samples"`          // samples of all peers together
	Loss         float64  `json:"loss,omitempty"`   // mean over the samples of all peers; absent if unknown
	Digest       string   `json:"digest"`           // hash of the parameters after the step
	Recomputed   int      `json:"recomputed"`       // microbatches computed a second time
	Stolen       int      `json:"stolen,omitempty"` // microbatches of other peers of the host that this peer computed
	ComputeMS    float64  `json:"compute_ms"`       // time of this peer's computation
	CommMS       float64  `json:"comm_ms"`          // time in which this peer waited for sums and the commit record
	StepMS       float64  `json:"step_ms"`          // time of the whole step
	// Times has the parts of StepMS.
	Times
	PredictedMS float64 `json:"predicted_ms,omitempty"` // forecast of ComputeMS when the share was set; absent if unknown
	Of          int64   `json:"of,omitempty"`           // steps of the whole job, if known
	GradNorm    float64 `json:"grad_norm,omitempty"`    // norm of the mean gradient of this peer's samples, if known
	NoiseScale  float64 `json:"noise_scale,omitempty"`  // gradient noise scale in samples, if known; equal at all members except new ones
	LR          float64 `json:"lr,omitempty"`           // learning rate, if known
	SentBytes   int64   `json:"sent_bytes,omitempty"`   // bytes of gradients that this peer sent, if they were compressed
	RawBytes    int64   `json:"raw_bytes,omitempty"`    // bytes that this peer would have sent without compression
	// Metrics has the values of elastic.Turn.Report by name, combined over the peers, or those of an
	// optim.Teller. The event of a step also has the values of earlier steps without an event.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// OfLost lists the contributions of former members to this step, or to the step before, because
	// these members may have died before they reported them. At the last step of a job the list
	// also has the contribution of the next rank, because no later step can report that
	// contribution. Several members list the same contribution, so a reader that adds up
	// microbatches must count each (peer, step) once.
	OfLost []Contribution `json:"of_lost,omitempty"`
}

// Times has the parts of the time of a step at one peer, which follow each other without a gap:
//
//	StepMS = LostMS + PointMS + DataMS + ComputeMS + WaitMS + ReduceMS + ApplyMS + CommitMS
//
// Communication that computing hides is in ComputeMS. The steps of a peer follow each other without a gap
// too, unless the view changes between them: then the gap is the cost of the change, beside LostMS. With an
// update that overlaps with the next step, the computing of the next step is in its own time.
type Times struct {
	// Began is the time of the commit less StepMS, on the clock of the emitter; zero if the emitter has
	// learned of the commit from others, and then all parts are 0.
	Began   time.Time `json:"began,omitzero"`
	LostMS  float64   `json:"lost_ms,omitempty"`  // attempts at the step that failed, without kept computing
	PointMS float64   `json:"point_ms,omitempty"` // evaluations, decisions and other work of the program before the step
	DataMS  float64   `json:"data_ms,omitempty"`  // waits for samples
	WaitMS  float64   `json:"wait_ms,omitempty"`  // from the end of this peer's computing to that of the last peer
	// WaitFor is the short ID of the last peer; "" if it is the emitter.
	WaitFor  string  `json:"wait_for,omitempty"`
	ReduceMS float64 `json:"reduce_ms,omitempty"` // waits for sums when all peers have computed
	ApplyMS  float64 `json:"apply_ms,omitempty"`  // the update of the parameters
	CommitMS float64 `json:"commit_ms,omitempty"` // the commit record
}

// Contribution is the part of a stable step that one member computed.
type Contribution struct {
	Peer string `json:"peer"` // short ID
	// Step is the step to which the member contributed: the step of the event, or the step before.
	Step         int64    `json:"step"`
	Microbatches [][2]int `json:"microbatches"` // ranges [first, end)
}

// Name returns "step".
func (Step) Name() string { return "step" }

// Shares reports how many microbatches (in a loop of elastic.Group.Steps, samples) each rank
// computes from the step Event.Step on. One member of each launcher emits it.
type Shares struct {
	Old []int `json:"old"` // last reported shares, by the ranks of the session at that time; empty at the start
	New []int `json:"new"` // present shares, by rank
	// Reason says in words why the shares have changed.
	Reason string `json:"reason"`
}

// Name returns "shares".
func (Shares) Name() string { return "shares" }

// Growth reports that the batch is larger from the step Event.Step on. One member of each launcher
// emits it.
type Growth struct {
	Old int `json:"old"` // samples of a full step before
	New int `json:"new"`
	// NoiseScale is the gradient noise scale in samples by which the batch grew.
	NoiseScale float64 `json:"noise_scale"`
	// Gain is the factor by which the learning rate is larger than that of the schedule.
	Gain float64 `json:"gain"`
}

// Name returns "growth".
func (Growth) Name() string { return "growth" }

// Order reports the order of the ranks in the ring from the step Event.Step on. One member of each
// launcher emits it.
type Order struct {
	Order  []int   `json:"order"`                // ranks in the order of the ring
	Before float64 `json:"before_mbs,omitempty"` // MB/s of the slowest link in the previous order, if there was one
	After  float64 `json:"after_mbs,omitempty"`  // MB/s of the slowest link in this order, if known
	// Reason says in words why the order has changed.
	Reason string `json:"reason"`
}

// Name returns "order".
func (Order) Name() string { return "order" }

// Lost reports that a peer has disappeared without leaving.
type Lost struct {
	// Who is the short ID of the lost peer.
	Who      string  `json:"who"`
	Cause    string  `json:"cause"`              // exit, reset, silent or unreachable; empty if the emitter did not suspect the peer
	DetectMS float64 `json:"detect_ms"`          // time since the last message of the peer
	LimitMS  float64 `json:"limit_ms,omitempty"` // limit of silence that a silent or unreachable peer had exceeded when it was suspected
}

// Name returns "lost".
func (Lost) Name() string { return "lost" }

// Join reports that a peer was admitted. If the newcomer itself emits the event, it reports that
// the newcomer is in a view, with the state of the job.
type Join struct {
	// Who is the short ID of the newcomer.
	Who    string  `json:"who"`
	Reason string  `json:"reason"`
	Bytes  int64   `json:"bytes,omitempty"` // bytes of state and updates that the newcomer received
	MS     float64 `json:"ms,omitempty"`    // duration of the copy
}

// Name returns "join".
func (Join) Name() string { return "join" }

// Leave reports that a peer has left by agreement.
type Leave struct {
	// Who is the short ID of the peer that has left.
	Who string `json:"who"`
	// Reason is asked, closed (the program has closed its group), failed (the loop of the program has
	// failed at this peer), kicked, stalled (the others waited for the peer, so it stepped down), or
	// "stepped down: " with a reason of the peer's own (elastic.Group.StepDown).
	// It is empty if the emitter does not know the reason. The step of an event about its emitter is
	// the last step that the emitter has committed.
	Reason string `json:"reason"`
}

// Name returns "leave".
func (Leave) Name() string { return "leave" }

// Parked reports that a peer is not admitted yet and must wait.
type Parked struct {
	// Who is the short ID of the peer that waits. Reason names, in words, the cause of the wait.
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "parked".
func (Parked) Name() string { return "parked" }

// Fenced reports that a peer was removed from the view while it still runs. Its state is void.
type Fenced struct {
	// Who is the short ID of the removed peer. Reason says in words why the others removed it.
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "fenced".
func (Fenced) Name() string { return "fenced" }

// Forged reports that a member sent a newcomer a state that differs from the state of most members.
// The newcomer refused it and copied the state from another member.
type Forged struct {
	// Who is the short ID of the member that has sent the state. Reason says in words how the state
	// differs.
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Name returns "forged".
func (Forged) Name() string { return "forged" }

// Audit reports that members have computed one member's part of a step again, and which members'
// results differ (see trainer.Gradients.Audit).
type Audit struct {
	Who []string `json:"who"` // members whose result differs from the majority's result; without a majority, the audited member and the auditor
	Out bool     `json:"out"` // whether the members of Who are removed from the view
	For int      `json:"for"` // members with the most frequent result
	Of  int      `json:"of"`  // members that were able to compute the part
	// Reason is set if all members computed the same result, but the sum of the gradients differs
	// from it.
	Reason string `json:"reason,omitempty"`
}

// Name returns "audit".
func (Audit) Name() string { return "audit" }

// Resync reports that a peer has copied missing state from other members.
type Resync struct {
	// Who is the short ID of the peer that has copied the state. Reason says in words what was
	// missing.
	Who    string `json:"who"`
	Reason string `json:"reason"`
	// Bytes is the number of bytes that were copied.
	Bytes int64   `json:"bytes"`
	MS    float64 `json:"ms"`              // duration of the copy
	Began bool    `json:"began,omitempty"` // the peer had another state than the others before its first step
	Void  bool    `json:"void,omitempty"`  // the peer had dropped its state, for a reason that another event has
}

// Name returns "resync".
func (Resync) Name() string { return "resync" }

// Mismatch reports that members have registered different settings, so that the job cannot start.
type Mismatch struct {
	Reason string `json:"reason"` // which member differs, in which setting, and both values
}

// Name returns "mismatch".
func (Mismatch) Name() string { return "mismatch" }

// Mistake reports a mistake of the program, which ends the loops of all members.
type Mistake struct {
	Reason string `json:"reason"` // what is wrong, and the remedy
	// Found is set if the emitter has found the mistake, and has not learned of it from another peer.
	Found bool `json:"found,omitempty"`
}

// Name returns "mistake".
func (Mistake) Name() string { return "mistake" }

// Refused reports that its emitter, a newcomer, is not let in: the job refuses it or has ended, or no
// member answers.
type Refused struct {
	Reason string `json:"reason"`
}

// Name returns "refused".
func (Refused) Name() string { return "refused" }

// Complete reports that a loop of Group.Steps has come to its end at its emitter. The program may run
// another loop. Done follows when the program closes its group.
type Complete struct{}

// Name returns "complete".
func (Complete) Name() string { return "complete" }

// Unchanged reports that a loop has committed steps and its state has not changed. That is right if
// the program has converged, and otherwise a mistake.
type Unchanged struct {
	Steps  int64  `json:"steps"`  // steps that have left the state unchanged
	Remedy string `json:"remedy"` // what to do if it is a mistake
}

// Name returns "unchanged".
func (Unchanged) Name() string { return "unchanged" }

// Quorum reports that a group is too small to go on, or is large enough again.
type Quorum struct {
	State   string `json:"state"`   // lost, waiting, back or gave-up
	Present int    `json:"present"` // voters, or for MinPeers members, that are present
	Needed  int    `json:"needed"`  // voters that a quorum needs, or MinPeers
}

// Name returns "quorum".
func (Quorum) Name() string { return "quorum" }

// Restart reports that a launcher has restarted the peer with the index Event.Index.
type Restart struct {
	MS float64 `json:"ms"` // time since the previous process ended
}

// Name returns "restart".
func (Restart) Name() string { return "restart" }

// Saving reports that a peer begins to write a checkpoint, or that the write has failed. Unless it
// fails, an event Checkpoint follows. If the peer dies before, the file is not written.
type Saving struct {
	Path   string `json:"path"`             // path of the file once it is complete
	Failed string `json:"failed,omitempty"` // why the write has failed
}

// Name returns "saving".
func (Saving) Name() string { return "saving" }

// Checkpoint reports that a checkpoint is complete on disk.
type Checkpoint struct {
	Path string `json:"path"` // file or folder of the checkpoint; JSON has U+FFFD for bytes that are not UTF-8
	// MS is the time that the write took, in milliseconds.
	MS float64 `json:"ms"`
}

// Name returns "checkpoint".
func (Checkpoint) Name() string { return "checkpoint" }

// Stall reports that a call or step takes unusually long, and which peers cause it.
type Stall struct {
	Culprit string  `json:"culprit"`        // short IDs, separated by commas
	Phase   string  `json:"phase"`          // what the culprits do at the moment, in words
	What    string  `json:"what"`           // bucket or call that is stalled
	SinceMS float64 `json:"since_ms"`       // time for which the call or the step has waited
	Over    bool    `json:"over,omitempty"` // the wait that an earlier event reported has ended
}

// Name returns "stall".
func (Stall) Name() string { return "stall" }

// Path reports how data reaches a peer. A peer reports a path when it enters its first view with
// the other peer, and in later views if the path has changed.
type Path struct {
	// Who is the short ID of the other peer.
	Who  string `json:"who"`
	Kind string `json:"kind"` // shm, unix, direct, p2p or relay; mem within a process
	// Addr is the address of the other peer, in a form that depends on Kind; "" if there is none.
	Addr      string `json:"addr"`
	Encrypted bool   `json:"encrypted"`
	Why       string `json:"why,omitempty"` // reason why a better path failed, if a better path was tried
}

// Name returns "path".
func (Path) Name() string { return "path" }

// Dropped reports a gap in the log, because the launcher or the log could not process all events in
// time.
type Dropped struct {
	Events int `json:"events"` // number of missing events
}

// Name returns "dropped".
func (Dropped) Name() string { return "dropped" }

// Done is the last event of a peer whose job has finished.
type Done struct {
	Steps    int64    `json:"steps"`              // steps of the job
	Peers    int      `json:"peers"`              // number of members that committed the last step
	Accuracy *float64 `json:"accuracy,omitempty"` // accuracy on the test set, if reported
	Loss     *float64 `json:"loss,omitempty"`     // loss on the test set, if reported
	SHA256   string   `json:"sha256"`             // hash of the parameters in the order of their declaration
}

// Name returns "done".
func (Done) Name() string { return "done" }

// Line returns the last line of the job's output, without a line end. The line has accuracy and
// loss only if they were reported.
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

// Other is an event of a kind that this version does not know, for example of a newer peer.
type Other struct {
	Kind string
	Raw  json.RawMessage // the whole JSON object
}

// Name returns the unknown kind.
func (o Other) Name() string { return o.Kind }
