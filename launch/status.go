package launch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

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
// fields have only the values that other members report.
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

// reducer keeps the Status of one peer up to date from the events of that peer. It does no I/O and
// is not safe for concurrent use.
//
// A peer knows the view and its own figures, but not the figures of other peers: mergeStatus
// combines the reports of all peers. The state of the peer follows from its latest event:
//
//	joining --view--> running --stall, lost, quorum lost--> waiting --step, view--> running --done--> done
//	joining --parked--> parked --view--> running --leave--> left
//	running --fenced--> joining, soon under another ID
type reducer struct {
	status Status
	self   MemberStatus
	to     map[string]event.Path // paths to the members of the view, by ID
	// stalled has the short IDs of the members for which this peer waits.
	stalled []string
	short   bool   // too few members are left to go on
	state   string // parked, left or done; "" otherwise

	progress progress
	began    time.Time // time of the first view; zero before it
}

// newReducer returns the reducer of a peer that is in no view.
func newReducer(job string, self elastic.Member) *reducer {
	return &reducer{
		status: Status{Job: job}, to: make(map[string]event.Path),
		self: MemberStatus{ID: self.ID.Short(), Index: self.Index, Host: self.Host, Machine: self.Machine, Site: self.Site, Rank: -1},
	}
}

// renew records that the peer has a new ID and is in no view.
func (r *reducer) renew(self elastic.Member) {
	r.self.ID, r.self.Rank, r.state, r.stalled, r.to = self.ID.Short(), -1, "", nil, make(map[string]event.Path)
}

// apply updates the status from the next event.
func (r *reducer) apply(e event.Event) {
	r.progress.observe(e, e.Time)
	switch b := e.Body.(type) {
	case event.View:
		if r.began.IsZero() {
			r.began = e.Time
		}
		r.view(e.Epoch, b)
	case event.Step:
		r.step(e.Step, b)
	case event.Shares:
		r.status.Balanced = &Balanced{Step: e.Step, Old: b.Old, Shares: b.New, Reason: b.Reason} // shared, but nobody writes to the slices
	case event.Stall:
		r.stalled = splitIDs(b.Culprit)
	case event.Lost:
		if !slices.Contains(r.stalled, b.Who) && r.inView(b.Who) {
			r.stalled = append(slices.Clone(r.stalled), b.Who)
		}
	case event.Quorum:
		r.short = b.State != "back"
	case event.Parked:
		r.mark(b.Who, stateParked)
	case event.Leave:
		r.mark(b.Who, stateLeft)
	case event.Fenced:
		if b.Who == r.self.ID {
			r.self.Rank, r.stalled = -1, nil
		}
	case event.Path:
		if r.inView(b.Who) {
			r.to[b.Who] = b
		}
	case event.Done:
		r.state, r.stalled = stateDone, nil
		r.status.Step = max(r.status.Step, b.Steps)
	}
}

// mark records a state of this peer. It ignores the states of other peers, because each peer
// reports its own state.
func (r *reducer) mark(who, state string) {
	if who == r.self.ID && r.state != stateDone {
		r.state = state
	}
}

// inView reports whether a member is in the latest view.
func (r *reducer) inView(id string) bool {
	return slices.ContainsFunc(r.status.Members, func(m MemberStatus) bool { return m.ID == id })
}

// view starts an epoch: the ranks are new, and the peer waits for no member. A path stays until the
// peer reports another one.
func (r *reducer) view(epoch uint64, v event.View) {
	r.status.Epoch, r.stalled, r.short = epoch, nil, false
	maps.DeleteFunc(r.to, func(id string, _ event.Path) bool { return !slices.Contains(v.Members, id) })
	if r.state == stateParked {
		r.state = ""
	}
	r.status.Members = nil
	r.self.Rank = slices.Index(v.Members, r.self.ID)
	for rank, id := range v.Members {
		r.status.Members = append(r.status.Members, MemberStatus{ID: id, Index: -1, Rank: rank, State: stateUnknown, SeenMS: -1})
	}
}

// step records the figures of a stable step.
func (r *reducer) step(n int64, s event.Step) {
	r.status.Step, r.stalled = n, nil
	r.status.Of = max(r.status.Of, s.Of)
	r.self.Share = 0
	for _, m := range s.Microbatches {
		r.self.Share += m[1] - m[0]
	}
	r.self.ComputeMS, r.self.CommMS, r.self.StepMS, r.self.PredictedMS = s.ComputeMS, s.CommMS, s.StepMS, s.PredictedMS
	if s.ComputeMS > 0 {
		r.self.Speed = float64(s.ShareSamples) / s.ComputeMS * 1000
	}
}

// The states of a member.
const (
	stateUnknown = "unknown"
	stateJoining = "joining"
	stateRunning = "running"
	stateWaiting = "waiting"
	stateParked  = "parked"
	stateLeft    = "left"
	stateDone    = "done"
)

// report returns the status at now with this peer's own entry. The result shares no memory with r.
func (r *reducer) report(now time.Time) Status {
	s := r.status
	samples, steps, left := r.progress.speed(now)
	s.Progress = Progress{Loss: r.progress.loss, SamplesPerS: samples, StepsPerS: steps, LeftMS: left.Seconds() * 1000, Metrics: r.progress.metrics}
	if !r.began.IsZero() {
		s.ElapsedMS = now.Sub(r.began).Seconds() * 1000
	}
	self := r.self
	var kinds []string // in sorted order, each once
	for _, p := range r.to {
		if at, found := slices.BinarySearch(kinds, p.Kind); !found {
			kinds = slices.Insert(kinds, at, p.Kind)
		}
	}
	self.Path = join(kinds)
	// The first case that fits is the state: final states come first.
	switch {
	case r.state != "":
		self.State = r.state
	case self.Rank < 0:
		self.State = stateJoining
	case len(r.stalled) > 0 || r.short:
		self.State = stateWaiting
	default:
		self.State = stateRunning
	}
	// Copy the slices, because later events change the slices of r.
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		p, known := r.to[s.Members[i].ID]
		s.Members[i].Path = p.Kind
		if known {
			self.Paths = append(self.Paths, PeerPath{p.Who, p.Kind, p.Addr, p.Encrypted, p.Why})
		}
	}
	if i := self.Rank; i >= 0 {
		s.Members[i] = self
	} else {
		s.Members = append(s.Members, self)
	}
	s.WaitingFor = slices.Clone(r.stalled)
	return s
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

// mergeStatus combines the reports of the peers of one job: the latest view, with each member's
// own entry. During a membership change the reports may be from two epochs; peers outside the
// later view are then last. The result does not depend on the order of reports.
func mergeStatus(reports []Status) Status {
	var out Status
	own, seen := map[string]MemberStatus{}, map[string]float64{}
	var base []MemberStatus
	// Take the view of the latest epoch, and the newest values of all reports. Reports of one epoch
	// have equal lists of members, so take the list of the first report.
	for i, s := range reports {
		if i == 0 || s.Epoch > out.Epoch {
			out.Job, out.Epoch, base = s.Job, s.Epoch, s.Members
		}
		elapsed := max(out.ElapsedMS, s.ElapsedMS)
		if i == 0 || s.Step > out.Step {
			out.Progress = s.Progress
		}
		out.Step, out.Of, out.ElapsedMS = max(out.Step, s.Step), max(out.Of, s.Of), elapsed
		if s.Balanced != nil && (out.Balanced == nil || s.Balanced.Step > out.Balanced.Step) {
			out.Balanced = s.Balanced
		}
		out.WaitingFor = append(out.WaitingFor, s.WaitingFor...)
		for _, m := range s.Members {
			if m.State != stateUnknown {
				own[m.ID] = m
			} else if last, ok := seen[m.ID]; m.SeenMS >= 0 && (!ok || m.SeenMS < last) {
				seen[m.ID] = m.SeenMS
			}
		}
	}
	// A member's own report replaces the reports of other members about it.
	out.Members = []MemberStatus{}
	for _, m := range base {
		if last, ok := seen[m.ID]; ok {
			m.SeenMS = last
		}
		if o, ok := own[m.ID]; ok {
			m = o
		}
		delete(own, m.ID)
		out.Members = append(out.Members, m)
	}
	for _, m := range own { // not in the latest view
		out.Members = append(out.Members, m)
	}
	slices.SortFunc(out.Members, compareMembers)
	// Several members may wait for the same member: name it once.
	slices.Sort(out.WaitingFor)
	out.WaitingFor = append([]string{}, slices.Compact(out.WaitingFor)...)
	return out
}

// compareMembers orders members by rank, then by index, then by ID, so that the order never
// depends on the order of reports. Members without a rank are last.
func compareMembers(a, b MemberStatus) int {
	rank := func(m MemberStatus) int {
		if m.Rank < 0 {
			return maxPeers
		}
		return m.Rank
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}
