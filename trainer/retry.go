package trainer

import (
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// retries protects the members from a sample that ends the process of each peer that computes it.
// It records which members had a microbatch of an open step and are gone. Before this peer computes
// such a microbatch, it says so by elastic.Session.Retry. A launcher then knows what this peer was
// computing if it dies, and refuses the microbatch once it has ended two peers in the same way.
//
// A microbatch whose member is gone because of something else passes without a delay: the launcher
// knows how its process has ended.
type retries struct {
	// members are the members of the last session, by rank.
	members []elastic.ID
	// lost has, by step and microbatch, the members that are gone and had the microbatch.
	lost map[int64]map[int][]elastic.ID
	done func() // ends the last request; nil if none is open
}

// gone records the members of the last session that are not in session s. open is the step after
// the last committed step, assigned are the steps whose shares are known from the last session, with
// the shares of its members.
func (r *retries) gone(s *elastic.Session, open int64, assigned map[int64][]ledger.Set) {
	for step, shares := range assigned {
		for rank, share := range shares {
			if rank >= len(r.members) || s.View.Rank(r.members[rank]) >= 0 {
				continue
			}
			r.add(step, share, r.members[rank])
		}
	}
	for step := range r.lost {
		if step < open {
			delete(r.lost, step)
		}
	}
	r.members = nil
	for _, m := range s.View.Members {
		r.members = append(r.members, m.ID)
	}
}

// add records that a member with a share of a step is gone.
func (r *retries) add(step int64, share ledger.Set, id elastic.ID) {
	if r.lost == nil {
		r.lost = make(map[int64]map[int][]elastic.ID)
	}
	if r.lost[step] == nil {
		r.lost[step] = make(map[int][]elastic.ID)
	}
	for _, k := range share.Without(nil) {
		r.lost[step][k] = append(r.lost[step][k], id)
	}
}

// suspects reports whether members that are gone had microbatches of a step.
func (r *retries) suspects(step int64) bool { return len(r.lost[step]) > 0 }

// begin is called before a call of the model. If members that are gone had some of its microbatches,
// it asks whether they may be computed again. The error of a refusal ends the job at all members.
func (r *retries) begin(ctx context.Context, s *elastic.Session, p stepPlan, micros []int) error {
	r.end()
	request := elastic.Retry{Step: p.step}
	for _, k := range micros {
		if of := r.lost[p.step][k]; len(of) > 0 {
			request.Of = append(request.Of, of...)
			request.Samples = p.appendSamples(request.Samples, k)
		}
	}
	if len(request.Of) == 0 {
		return nil
	}
	slices.Sort(request.Of)
	request.Of = slices.Compact(request.Of)
	var err error
	if r.done, err = s.Retry(ctx, request); err == nil || ctx.Err() != nil {
		return err
	}
	mistake := &collective.AbortError{Rank: s.Rank, Cause: err.Error(), Mistake: true}
	return fmt.Errorf("%w: %w", errNextSession, mistake) // there is no next session: Next reports the mistake to all members
}

// end ends the last request: its microbatches have been computed.
func (r *retries) end() {
	if r.done != nil {
		r.done()
		r.done = nil
	}
}
