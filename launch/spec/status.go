package spec

import "github.com/elrun/elrun/event/timeline"

// Pace follows the steps of a job and makes its progress line; see timeline.Pace.
type Pace = timeline.Pace

// Status is the state of a job, as its peers on this host report it.
type Status struct {
	Job   string `json:"job"`
	Epoch uint64 `json:"epoch"`
	Step  int64  `json:"step"`         // last stable step; 0 if unknown
	Of    int64  `json:"of,omitempty"` // steps of the whole job; 0 if unknown
	Progress
	Members []MemberStatus `json:"members"`
	// WaitingFor has the short IDs of the peers for which others wait unusually long, and of lost
	// peers that are still in the view.
	WaitingFor []string `json:"waiting_for"`
	// Balanced is the last change of the shares; nil if there was none.
	Balanced *Balanced `json:"balanced,omitempty"`
	// Batch is the number of samples of a full step since the step BatchSince, from which on the batch
	// is larger than before; 0 if it has not grown.
	Batch      int   `json:"batch,omitempty"`
	BatchSince int64 `json:"batch_since,omitempty"`
	// Goodput tells what the time of the peers was used for, and Stragglers for whom the others have waited,
	// as far as the elruns on this host know; nil without one.
	Goodput    *timeline.Goodput    `json:"goodput,omitempty"`
	Stragglers []timeline.Straggler `json:"stragglers,omitempty"`
	// Log is the path of the event log on the host of the job's elrun; "" if it has none.
	Log string `json:"log,omitempty"`
	// Ended describes the end of the job; nil while it runs. An ended job has no members. See
	// LastStatus.
	Ended *Ended `json:"ended,omitempty"`
}

// Progress describes how far a job is and how fast it goes. A field is 0 if its value is unknown.
type Progress struct {
	Loss        float64 `json:"loss,omitempty"`          // loss of the last step
	SamplesPerS float64 `json:"samples_per_s,omitempty"` // samples of all peers in a second, over the last ten seconds
	StepsPerS   float64 `json:"steps_per_s,omitempty"`   // over the last ten seconds
	ElapsedMS   float64 `json:"elapsed_ms,omitempty"`    // time since a reporting peer entered its first view
	LeftMS      float64 `json:"left_ms,omitempty"`       // expected time until the last step
	// Metrics has the latest values of elastic.Turn.Report by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Balanced describes the members' shares and the reason for them.
type Balanced struct {
	Step   int64  `json:"step"`          // the first step with these shares
	Old    []int  `json:"old,omitempty"` // previous shares, by the ranks at that time; empty at the start
	Shares []int  `json:"shares"`        // microbatches of a full step, by rank
	Reason string `json:"reason"`
}

// MemberStatus is one peer of a Status. If the peer is on another host, or did not answer, the
// fields have only what other members and its elrun tell of it.
type MemberStatus struct {
	ID        string  `json:"id"`                 // short
	Index     int     `json:"index"`              // local index at its launcher, -1 if unknown
	PID       int     `json:"pid,omitempty"`      // 0 if unknown
	Launcher  int     `json:"launcher,omitempty"` // process ID of its elrun, 0 if unknown
	Host      string  `json:"host"`
	Machine   string  `json:"machine,omitempty"` // distinguishes hosts with the same name
	Site      string  `json:"site,omitempty"`
	Rank      int     `json:"rank"`       // -1 while it is in no view
	State     string  `json:"state"`      // joining, running, waiting, parked, left, done, unknown
	Share     int     `json:"share"`      // microbatches in the last step
	Speed     float64 `json:"speed"`      // samples per second of compute time
	ComputeMS float64 `json:"compute_ms"` // of the last step
	CommMS    float64 `json:"comm_ms"`    // of the last step
	StepMS    float64 `json:"step_ms"`    // of the last step
	// PredictedMS is the value of ComputeMS that was forecast when the share was decided; 0 if
	// unknown.
	PredictedMS float64 `json:"predicted_ms"`
	Path        string  `json:"path"` // kinds of its paths to other members: shm, direct, p2p, ...
	// SeenMS is the time since the reporting members last heard from the peer, in milliseconds. It
	// is 0 if the peer reports itself, and -1 if unknown.
	SeenMS float64 `json:"seen_ms"`
	// Paths has the paths of this peer to the other members of the latest view. Only Job.Paths sets
	// it.
	Paths []PeerPath `json:"paths,omitempty"`
}

// PeerPath is the path of data from a member to another one.
type PeerPath struct {
	ID        string `json:"id"`   // short ID of the other member
	Kind      string `json:"kind"` // shm, unix, direct, p2p or relay
	Addr      string `json:"addr,omitempty"`
	Encrypted bool   `json:"encrypted"`
	Why       string `json:"why,omitempty"` // why the path is no better; "" if unknown
}

// StepTime returns the time of the last step, and the time that was predicted when its shares were
// decided, in milliseconds; 0 means unknown. The prediction is a sum: the longest predicted compute
// time, and the time that the step took beyond computing (communication) at the member that
// computed longest. At other members that time would include the wait for the slowest member.
func (s Status) StepTime() (measured, predicted float64) {
	var slowest MemberStatus
	for _, m := range s.Members {
		measured, predicted = max(measured, m.StepMS), max(predicted, m.PredictedMS)
		if m.ComputeMS > slowest.ComputeMS {
			slowest = m
		}
	}
	if predicted > 0 {
		predicted += max(0, slowest.StepMS-slowest.ComputeMS)
	}
	return measured, predicted
}

// The states of a member.
const (
	StateUnknown = "unknown"
	StateJoining = "joining"
	StateRunning = "running"
	StateWaiting = "waiting"
	StateParked  = "parked"
	StateLeft    = "left"
	StateDone    = "done"
)
