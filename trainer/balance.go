package trainer

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
)

// balance decides how many microbatches each rank of a session is to compute. What it
// decides from has been gathered or reduced, so that all ranks come to the same.
type balance struct {
	policy loadbal.Policy
	target
	// coming is about the step after the open one, where a peer has to know its part of that
	// before the open one is committed (Config.Delay): it is then a step older.
	coming target
	early  bool

	// What the log has not been told yet.
	told  []int  // wanted, as the log has it
	cause string // of a new session, in which the policy has begun anew
	short bool   // a short step has been between the one of told and the open one

	// What this peer knows of itself.
	most   int     // microbatches that it can take; 0 for no bound
	micros int64   // that the contribution to the open step took; 0 if that is no measure
	speeds []int64 // of its last steps
}

// target is what a policy wants of a step.
type target struct {
	wanted []int  // microbatches of each rank
	why    string // in the policy's words: wanted is other than for the step before
	// predicted is how long this peer's share should take; 0 if that is not known.
	predicted time.Duration
}

// speedWindow is how many steps' speeds a peer takes along to the next session. Their
// median does not show a single step that something else has held up.
const speedWindow = 5

// note takes the time that a share took which was computed in one go.
func (b *balance) note(share int, took time.Duration) {
	b.micros = max(1, took.Microseconds())
	b.speeds = append(b.speeds, loadbal.Speed(share, b.micros))
	if len(b.speeds) > speedWindow {
		b.speeds = b.speeds[1:]
	}
}

// speed is this peer's, from its last steps; 0 if it is not known.
func (b *balance) speed() int64 {
	if len(b.speeds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(b.speeds))[len(b.speeds)/2]
}

// enter starts a session from what all ranks have told. What was learned in the session
// before is in the speeds: the members of a session may have come from different ones.
func (b *balance) enter(policy string, all []entry, microbatches, self int) error {
	var err error
	if b.policy, err = loadbal.New(policy); err != nil {
		return err
	}
	speeds, bounds, bounded := make([]int64, len(all)), make([]loadbal.Report, len(all)), false
	for rank, e := range all {
		speeds[rank], bounds[rank].Max = e.speed, e.most
		bounded = bounded || e.most > 0
	}
	if !bounded {
		bounds = nil
	}
	b.policy.Begin(speeds)
	if b.cause = "the members have changed"; b.told == nil {
		b.cause = "start"
	}
	b.target = b.decide(bounds, microbatches, self)
	b.coming = b.target
	return nil
}

// next goes on to the step after the one that the reports are of. The policy decides about so
// many microbatches of it, or of the step after that where this has been decided about early.
// self is this peer's rank.
func (b *balance) next(reports []loadbal.Report, microbatches, self int) {
	d := b.decide(reports, microbatches, self)
	if b.early {
		d, b.coming = b.coming, d
	}
	b.target = d
}

// decide asks the policy.
func (b *balance) decide(reports []loadbal.Report, microbatches, self int) (d target) {
	if microbatches == 0 { // there is no such step
		return target{}
	}
	d.wanted, d.why = b.policy.Next(reports, microbatches)
	d.predicted = time.Duration(b.policy.Forecast()[self]) * time.Microsecond
	return d
}

// ahead is what is wanted of each rank in the step after the open one, as far as it is known.
func (b *balance) ahead() []int {
	if b.early {
		return b.coming.wanted
	}
	return b.wanted
}

// measured takes note of how long a share took to compute. One of which some was there before,
// from a session that broke, or of which nothing is computed, gives no measure of the peer's
// speed.
func (b *balance) measured(share int, whole bool, took time.Duration) {
	if b.micros = 0; whole && share > 0 {
		b.note(share, took)
	}
}

// shareOut gives each rank its part of the open step, of which nobody holds anything:
// after a commit, or when a step has to be computed again.
func (r *runner) shareOut(s *elastic.Session, slots []slot, committed bool) {
	if committed {
		reports := make([]loadbal.Report, len(slots))
		for rank, o := range slots {
			reports[rank] = loadbal.Report{Share: r.shares[rank].Len(), Micros: o.micros, Max: int(o.most)}
		}
		before := r.state.committed() // the step that is decided about
		if r.balance.early {
			before++
		}
		r.balance.next(reports, r.plan.after(before), s.Rank)
	}
	r.shares, _ = loadbal.AssignTo(make([]loadbal.Set, len(slots)), r.balance.wanted, r.openMicrobatches())
	r.tellShares(s)
}

// tellShares writes to the log that the shares are others than before, and why. The
// lowest rank of each launcher does, so that it stands once in each log. The short step
// at the end of a pass has other shares for no reason of its own, and is passed over.
func (r *runner) tellShares(s *elastic.Session) {
	b := &r.balance
	if r.openMicrobatches() < r.plan.mostMicrobatches() {
		b.short = true
		return
	}
	old, why := b.told, b.reason()
	b.cause, b.short = "", false
	if slices.Equal(old, b.wanted) {
		return
	}
	b.told = slices.Clone(b.wanted)
	if !speaks(s) {
		return
	}
	if old == nil {
		old = []int{} // the log has an empty list, not null
	}
	r.group.Emit(s.View.Epoch, r.state.committed()+1, event.Shares{Old: old, New: b.told, Reason: why})
}

// reason says why shares of a full step are others than those told. What the policy says
// compares with the step before; where that was a short one it does not fit.
func (b *balance) reason() string {
	switch {
	case b.cause != "":
		return b.cause
	case !b.short:
		return b.why
	}
	most := 0
	for rank := range b.wanted {
		if distance(b.wanted[rank], b.told[rank]) > distance(b.wanted[most], b.told[most]) {
			most = rank
		}
	}
	return fmt.Sprintf("rank %d: %d to %d, as times were in the short step at the end of the pass", most, b.told[most], b.wanted[most])
}

// distance is how far two numbers are from each other.
func distance(a, b int) int { return max(a-b, b-a) }

// takeLess answers a model that has run out of memory over a share: it is given half as
// much at once from now on, or, if that was a microbatch, this peer's bound is half of the
// share. All leave the session, in the next one of which the bound is known. What has been
// computed goes with the call that failed, as that may be in the sums in part. No reduction
// may be under way.
func (r *runner) takeLess(p stepPlan, share int, cause error) error {
	switch n := min(share, r.together()); {
	case n > 1:
		r.most = n / 2
		r.cfg.log("this peer computes at most %d samples at once from now on: %v", r.most*p.micro, cause)
	case share > 1:
		r.balance.most = share / 2
		r.cfg.log("this peer computes at most %d microbatches of a step from now on: %v", r.balance.most, cause)
	default:
		return fmt.Errorf("a single microbatch is too much: %w", cause)
	}
	r.open.reset(p.step, r.open.attempt, r.open.scale, p.microbatches)
	return fmt.Errorf("%w: %w", errNextSession, cause)
}
