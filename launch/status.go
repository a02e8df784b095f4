package launch

import (
	"cmp"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// Status is the state of a job as its peers on this host tell it.
type Status struct {
	Job     string         `json:"job"`
	Epoch   uint64         `json:"epoch"`
	Step    int64          `json:"step"`         // last stable step; 0 if none is known of
	Of      int64          `json:"of,omitempty"` // steps of the whole job, 0 if that is not known
	Members []MemberStatus `json:"members"`
	// WaitingFor holds the short IDs of the peers for which others wait unusually long, or
	// which were lost and are still in the view.
	WaitingFor []string `json:"waiting_for"`
	// Balanced is the last change of the shares; nil if there was none.
	Balanced *Balanced `json:"balanced,omitempty"`
	// Ended says how the job ended, if it has; then there are no members. See LastStatus.
	Ended *Ended `json:"ended,omitempty"`
}

// Balanced says why the members' shares are what they are.
type Balanced struct {
	Step   int64  `json:"step"`          // the first with these shares
	Old    []int  `json:"old,omitempty"` // the shares before, per rank of then; none at the start
	Shares []int  `json:"shares"`        // microbatches in a full step, per rank
	Reason string `json:"reason"`
}

// MemberStatus is one peer of a Status. Of a peer that was not asked, as it is on another host, or
// did not answer, only that is known which other members know of it.
type MemberStatus struct {
	ID        string  `json:"id"`                 // short
	Index     int     `json:"index"`              // local index at its launcher, -1 if not known
	PID       int     `json:"pid,omitempty"`      // 0 if not known
	Launcher  int     `json:"launcher,omitempty"` // process ID of its elrun, 0 if not known
	Host      string  `json:"host"`
	Machine   string  `json:"machine,omitempty"` // tells hosts apart that have one name
	Site      string  `json:"site,omitempty"`
	Rank      int     `json:"rank"`       // -1 while it is in no view
	State     string  `json:"state"`      // joining, running, waiting, parked, left, done, unknown
	Share     int     `json:"share"`      // microbatches in the last step
	Speed     float64 `json:"speed"`      // samples per second of computing
	ComputeMS float64 `json:"compute_ms"` // of the last step
	CommMS    float64 `json:"comm_ms"`    // of the last step
	StepMS    float64 `json:"step_ms"`    // of the last step
	// PredictedMS is what ComputeMS was expected to be when the share was decided, 0 if
	// that is not known.
	PredictedMS float64 `json:"predicted_ms"`
	Path        string  `json:"path"` // kinds of the paths to others: shm, direct, p2p, ...
	// SeenMS is how long ago those who tell of the peer have heard it, 0 if it tells itself,
	// and -1 if that is not known.
	SeenMS float64 `json:"seen_ms"`
	// Paths are those to the others in the latest view; none unless Job.Paths asked for them.
	Paths []PeerPath `json:"paths,omitempty"`
}

// PeerPath is how data goes from a member to another one.
type PeerPath struct {
	ID        string `json:"id"`   // short, of the other
	Kind      string `json:"kind"` // shm, unix, direct, p2p or relay
	Addr      string `json:"addr,omitempty"`
	Encrypted bool   `json:"encrypted"`
	Why       string `json:"why,omitempty"` // it is no better, if that is known
}

// reducer keeps one peer's Status up to date from the events that the peer itself
// emits. It is pure and not safe for concurrent use.
//
// A peer knows the view and its own figures, and not those of others: the figures are
// joined by whoever asks all peers. Its state follows from the latest event:
//
//	joining --view--> running --stall, lost, quorum lost--> waiting --step, view--> running --done--> done
//	joining --parked--> parked --view--> running --leave--> left
//	running --fenced--> joining, soon under another ID
type reducer struct {
	status  Status
	self    MemberStatus
	paths   []string              // kinds of those of the present view
	to      map[string]event.Path // the paths to its members, by ID
	stalled []string              // whom this peer waits for
	short   bool                  // too few members are left to go on
	state   string                // parked, left or done; "" if none of these
}

func newReducer(job string, self elastic.Member) *reducer {
	return &reducer{
		status: Status{Job: job}, to: make(map[string]event.Path),
		self: MemberStatus{ID: self.ID.Short(), Index: self.Index, Host: self.Host, Machine: self.Machine, Site: self.Site, Rank: -1},
	}
}

// renew notes that the peer has a new ID and is in no view.
func (r *reducer) renew(self elastic.Member) {
	r.self.ID, r.self.Rank, r.state, r.stalled, r.paths, r.to = self.ID.Short(), -1, "", nil, nil, make(map[string]event.Path)
}

// apply takes the next event.
func (r *reducer) apply(e event.Event) {
	switch b := e.Body.(type) {
	case event.View:
		r.view(e.Epoch, b)
	case event.Step:
		r.step(e.Step, b)
	case event.Shares:
		r.status.Balanced = &Balanced{Step: e.Step, Old: b.Old, Shares: b.New, Reason: b.Reason} // which nobody writes to
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
		if e.Epoch == r.status.Epoch {
			r.to[b.Who] = b
		}
		if e.Epoch == r.status.Epoch && !slices.Contains(r.paths, b.Kind) {
			r.paths = append(r.paths, b.Kind)
			slices.Sort(r.paths)
		}
	case event.Done:
		r.state, r.stalled = stateDone, nil
		r.status.Step = max(r.status.Step, b.Steps)
	}
}

// mark notes a state of this peer; that of others is theirs to tell.
func (r *reducer) mark(who, state string) {
	if who == r.self.ID && r.state != stateDone {
		r.state = state
	}
}

// inView reports whether the latest view has a member.
func (r *reducer) inView(id string) bool {
	return slices.ContainsFunc(r.status.Members, func(m MemberStatus) bool { return m.ID == id })
}

// view starts an epoch: ranks are new, nobody is waited for, and nobody is reached yet.
func (r *reducer) view(epoch uint64, v event.View) {
	r.status.Epoch, r.stalled, r.short, r.paths, r.to = epoch, nil, false, nil, make(map[string]event.Path)
	if r.state == stateParked {
		r.state = ""
	}
	r.status.Members = nil
	r.self.Rank = slices.Index(v.Members, r.self.ID)
	for rank, id := range v.Members {
		r.status.Members = append(r.status.Members, MemberStatus{ID: id, Index: -1, Rank: rank, State: stateUnknown, SeenMS: -1})
	}
}

// step notes the figures of a stable step.
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

// States of a member.
const (
	stateUnknown = "unknown"
	stateJoining = "joining"
	stateRunning = "running"
	stateWaiting = "waiting"
	stateParked  = "parked"
	stateLeft    = "left"
	stateDone    = "done"
)

// report returns the status in which this peer's own entry is filled in. The
// result shares nothing with r.
func (r *reducer) report() Status {
	s := r.status
	self := r.self
	self.Path = join(r.paths)
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

// StepTime returns the time that the last step took, and the time that was predicted when
// its shares were decided, in milliseconds; 0 stands for what is not known. Members
// predict how long they compute. What the step took besides is taken as it was
// at the member that computed the longest: the others' includes their wait for it.
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

// mergeStatus combines what peers of one job reported: the latest view, in which
// each member is as it described itself. During a change of membership the reports
// may be of two epochs; then peers outside the later view come last. The order of
// reports does not matter.
func mergeStatus(reports []Status) Status {
	var out Status
	own, seen := map[string]MemberStatus{}, map[string]float64{}
	var base []MemberStatus
	for i, s := range reports {
		if i == 0 || s.Epoch > out.Epoch {
			out.Job, out.Epoch, base = s.Job, s.Epoch, s.Members
		}
		out.Step, out.Of = max(out.Step, s.Step), max(out.Of, s.Of)
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
	for _, m := range own { // not in the latest view, or not yet
		out.Members = append(out.Members, m)
	}
	slices.SortFunc(out.Members, compareMembers)
	slices.Sort(out.WaitingFor)
	out.WaitingFor = append([]string{}, slices.Compact(out.WaitingFor)...)
	return out
}

// compareMembers orders by rank, members without one last, by index.
func compareMembers(a, b MemberStatus) int {
	rank := func(m MemberStatus) int {
		if m.Rank < 0 {
			return maxPeers
		}
		return m.Rank
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}
