package timeline

import (
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

// maxViews bounds the views that are remembered, and maxMembers the members of one.
const (
	maxViews   = 256
	maxMembers = 4096
)

// View is a membership of the job.
type View struct {
	Epoch   uint64    `json:"epoch"`
	Time    time.Time `json:"time"` // when the first of the members entered it
	Reason  string    `json:"reason"`
	Members []string  `json:"members"` // short IDs, by rank
	Joined  []string  `json:"joined,omitempty"`
	Left    []string  `json:"left,omitempty"`
	Lost    []Loss    `json:"lost,omitempty"`
	// CostMS is the time that the change took from the training: the longest of any member, from its last
	// step to its first call in this view, with the failed attempts at the next step.
	CostMS float64 `json:"cost_ms,omitempty"`
	// Recomputed is the number of microbatches that were computed again in this view.
	Recomputed int `json:"recomputed,omitempty"`
}

// Loss is a peer that a view does not have any more.
type Loss struct {
	Who      string  `json:"who"` // short ID
	Cause    string  `json:"cause,omitempty"`
	DetectMS float64 `json:"detect_ms,omitempty"`
}

// views has the latest views of a job, in the order in which they were entered.
type views struct {
	list  []View
	count int
}

// enter adds a view, unless another member has reported it. It reports whether the view is new.
func (v *views) enter(epoch uint64, at instant, b event.View) bool {
	members := b.Members[:min(len(b.Members), maxMembers)]
	for i := range v.list {
		if w := &v.list[i]; w.Epoch == epoch && slices.Equal(w.Members, members) {
			return false
		}
	}
	added := View{Epoch: epoch, Time: at.time(), Reason: b.Reason, Members: slices.Clone(members)}
	if n := len(v.list); n > 0 {
		added.Joined = without(members, v.list[n-1].Members)
		added.Left = without(v.list[n-1].Members, members)
	}
	if len(v.list) == maxViews {
		v.list = slices.Delete(v.list, 0, 1)
	}
	v.list = append(v.list, added)
	v.count++
	return true
}

// without returns the elements of a that b does not have.
func without(a, b []string) (out []string) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// at returns the latest view of an epoch; nil if it is not known.
func (v *views) at(epoch uint64) *View {
	for i := range slices.Backward(v.list) {
		if v.list[i].Epoch == epoch {
			return &v.list[i]
		}
	}
	return nil
}

// lose notes that the view of an epoch has lost a peer. Several members report it; what one of them knows of
// the cause counts.
func (v *views) lose(epoch uint64, l event.Lost) {
	w := v.at(epoch)
	if w == nil {
		return
	}
	w.Left = slices.DeleteFunc(w.Left, func(id string) bool { return id == l.Who })
	i := slices.IndexFunc(w.Lost, func(o Loss) bool { return o.Who == l.Who })
	switch {
	case i < 0 && len(w.Lost) < maxMembers:
		w.Lost = append(w.Lost, Loss{l.Who, l.Cause, milliseconds(duration(l.DetectMS))})
	case i >= 0 && w.Lost[i].Cause == "":
		w.Lost[i].Cause = l.Cause
	}
}

// between returns the short IDs of the peers that were lost in the epochs after one and up to another.
func (v *views) between(after, upTo uint64) (lost []string) {
	for i := range v.list {
		if w := &v.list[i]; w.Epoch > after && w.Epoch <= upTo {
			for _, l := range w.Lost {
				lost = append(lost, l.Who)
			}
		}
	}
	return lost
}

// cost notes what a change of the view has cost one member.
func (v *views) cost(epoch uint64, lost time.Duration) {
	if w := v.at(epoch); w != nil {
		w.CostMS = max(w.CostMS, milliseconds(lost))
	}
}
