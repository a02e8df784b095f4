package inpeer

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// reducer keeps the Status of one peer up to date from the events of that peer. It does no I/O and
// is not safe for concurrent use.
//
// A peer knows the view and its own figures, but not the figures of other peers: MergeStatus
// combines the reports of all peers. The state of the peer follows from its latest event:
//
//	joining --view--> running --stall, lost, quorum lost--> waiting --step, view--> running --done--> done
//	joining --parked--> parked --view--> running --leave--> left
//	running --fenced--> joining, soon under another ID
type reducer struct {
	status spec.Status
	self   spec.MemberStatus
	to     map[string]event.Path // paths to the members of the view, by ID
	// stalled has the short IDs of the members for which this peer waits.
	stalled []string
	short   bool   // too few members are left to go on
	state   string // parked, left or done; "" otherwise

	progress spec.Pace
	began    time.Time // time of the first view; zero before it
}

// newReducer returns the reducer of a peer that is in no view.
func newReducer(job string, self elastic.Member) *reducer {
	return &reducer{
		status: spec.Status{Job: job}, to: make(map[string]event.Path),
		self: spec.MemberStatus{ID: self.ID.Short(), Index: self.Index, Host: self.Host, Machine: self.Machine, Site: self.Site, Rank: -1},
	}
}

// renew records that the peer has a new ID and is in no view.
func (r *reducer) renew(self elastic.Member) {
	r.self.ID, r.self.Rank, r.state, r.stalled, r.to = self.ID.Short(), -1, "", nil, make(map[string]event.Path)
}

// apply updates the status from the next event.
func (r *reducer) apply(e event.Event) {
	r.progress.Observe(e, e.Time)
	switch b := e.Body.(type) {
	case event.View:
		if r.began.IsZero() {
			r.began = e.Time
		}
		r.view(e.Epoch, b)
	case event.Step:
		r.step(e.Step, b)
	case event.Shares:
		r.status.Balanced = &spec.Balanced{Step: e.Step, Old: b.Old, Shares: b.New, Reason: b.Reason} // shared, but nobody writes to the slices
	case event.Growth:
		r.status.Batch, r.status.BatchSince = b.New, e.Step
	case event.Stall:
		r.stalled = nil
		if !b.Over {
			r.stalled = wire.SplitIDs(b.Culprit)
		}
	case event.Lost:
		if !slices.Contains(r.stalled, b.Who) && r.inView(b.Who) {
			r.stalled = append(slices.Clone(r.stalled), b.Who)
		}
	case event.Quorum:
		r.short = b.State != "back"
	case event.Parked:
		r.mark(b.Who, spec.StateParked)
	case event.Leave:
		r.mark(b.Who, spec.StateLeft)
	case event.Fenced:
		if b.Who == r.self.ID {
			r.self.Rank, r.stalled = -1, nil
		}
	case event.Path:
		if r.inView(b.Who) {
			r.to[b.Who] = b
		}
	case event.Done:
		r.state, r.stalled = spec.StateDone, nil
		r.status.Step = max(r.status.Step, b.Steps)
	}
}

// mark records a state of this peer. It ignores the states of other peers, because each peer
// reports its own state.
func (r *reducer) mark(who, state string) {
	if who == r.self.ID && r.state != spec.StateDone {
		r.state = state
	}
}

// inView reports whether a member is in the latest view.
func (r *reducer) inView(id string) bool {
	return slices.ContainsFunc(r.status.Members, func(m spec.MemberStatus) bool { return m.ID == id })
}

// view starts an epoch: the ranks are new, and the peer waits for no member. A path stays until the
// peer reports another one.
func (r *reducer) view(epoch uint64, v event.View) {
	r.status.Epoch, r.stalled, r.short = epoch, nil, false
	maps.DeleteFunc(r.to, func(id string, _ event.Path) bool { return !slices.Contains(v.Members, id) })
	if r.state == spec.StateParked {
		r.state = ""
	}
	r.status.Members = nil
	r.self.Rank = slices.Index(v.Members, r.self.ID)
	for rank, id := range v.Members {
		r.status.Members = append(r.status.Members, spec.MemberStatus{ID: id, Index: -1, Rank: rank, State: spec.StateUnknown, SeenMS: -1})
	}
}

// step records the figures of a stable step.
func (r *reducer) step(n int64, s event.Step) {
	r.status.Step, r.stalled = n, nil
	if s.Of > 0 {
		r.status.Of = s.Of // fewer than before if the batch has grown
	}
	r.self.Share = 0
	for _, m := range s.Microbatches {
		r.self.Share += m[1] - m[0]
	}
	r.self.ComputeMS, r.self.CommMS, r.self.StepMS, r.self.PredictedMS = s.ComputeMS, s.CommMS, s.StepMS, s.PredictedMS
	if s.ComputeMS > 0 {
		r.self.Speed = float64(s.ShareSamples) / s.ComputeMS * 1000
	}
}

// condition returns the state of the peer: the first case that fits, final states first.
func (r *reducer) condition() string {
	switch {
	case r.state != "":
		return r.state
	case r.self.Rank < 0:
		return spec.StateJoining
	case len(r.stalled) > 0 || r.short:
		return spec.StateWaiting
	}
	return spec.StateRunning
}

// report returns the status at now with this peer's own entry. The result shares no memory with r.
func (r *reducer) report(now time.Time) spec.Status {
	s := r.status
	samples, steps, left := r.progress.Speed(now)
	s.Progress = spec.Progress{Loss: r.progress.Loss, SamplesPerS: samples, StepsPerS: steps, LeftMS: left.Seconds() * 1000, Metrics: r.progress.Metrics}
	if !r.began.IsZero() {
		s.ElapsedMS = now.Sub(r.began).Seconds() * 1000
	}
	self := r.self
	self.State = r.condition()
	var kinds []string // in sorted order, each once
	for _, p := range r.to {
		if at, found := slices.BinarySearch(kinds, p.Kind); !found {
			kinds = slices.Insert(kinds, at, p.Kind)
		}
	}
	self.Path = strings.Join(kinds, ",")
	// Copy the slices, because later events change the slices of r.
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		p, known := r.to[s.Members[i].ID]
		s.Members[i].Path = p.Kind
		if known {
			self.Paths = append(self.Paths, spec.PeerPath{ID: p.Who, Kind: p.Kind, Addr: p.Addr, Encrypted: p.Encrypted, Why: p.Why})
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

// maxStacks bounds the text of the goroutines in a record, in bytes.
const maxStacks = 1 << 20

// record returns the record of this peer's calls with its goroutines, for the control socket. It needs neither the program nor a
// call.
func (p *peer) record() flight.Record {
	p.mu.Lock()
	g := p.group
	p.mu.Unlock()
	var out flight.Record
	if g == nil { // it has not joined yet
		out = flight.New(time.Now()).Record(time.Now())
	} else {
		out = g.Admin().Calls()
	}
	out.PID = p.a.pid()
	out.State, out.Needs = p.a.condition()
	stacks := make([]byte, maxStacks)
	out.Stacks = string(stacks[:runtime.Stack(stacks, true)])
	return out
}

// saveLimit bounds the time in which a member takes a wish for a checkpoint. The command then asks another peer.
const saveLimit = 5 * time.Second

// save passes the wish for a checkpoint to the member that writes it, for the control socket.
func (p *peer) save(ctx context.Context, since int64) (wish.Saved, error) {
	p.mu.Lock()
	g := p.group
	p.mu.Unlock()
	if g == nil {
		return wish.Saved{}, errors.New("launch: this peer has not joined yet")
	}
	ctx, cancel := context.WithTimeout(ctx, saveLimit)
	defer cancel()
	return g.Admin().Save(ctx, since)
}

// describeOthers completes the entries of s without a report of their own, from members and heard.
func describeOthers(s spec.Status, members []elastic.Member, heard map[elastic.ID]time.Duration) spec.Status {
	for i := range s.Members {
		m := &s.Members[i]
		if m.State != spec.StateUnknown {
			continue
		}
		if b := s.Balanced; b != nil && len(b.Shares) == len(s.Members) {
			m.Share = b.Shares[i] // shares and members are both in rank order
		}
		// Status has short IDs only, as events have; members has the whole IDs.
		k := slices.IndexFunc(members, func(e elastic.Member) bool { return e.ID.Short() == m.ID })
		if k < 0 {
			continue
		}
		m.Host, m.Machine, m.Site, m.Index = members[k].Host, members[k].Machine, members[k].Site, members[k].Index
		if silent, ok := heard[members[k].ID]; ok {
			m.SeenMS = float64(silent) / float64(time.Millisecond)
		}
	}
	return s
}
