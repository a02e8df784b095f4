package trainer

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// balance decides how many microbatches each rank of a session is to compute. What it
// decides from has been gathered or reduced, so that all ranks come to the same.
type balance struct {
	plan   plan
	policy loadbal.Policy
	target              // of the open step
	shares []ledger.Set // which microbatches each rank is to have
	// coming is about the step after the open one, where a peer has to know its part of that
	// before the open one is committed (Config.Delay): it is then a step older.
	coming target
	early  bool
	emit   func(epoch uint64, step int64, body event.Body)

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

// assume takes a speed of this peer as that of its last steps.
func (b *balance) assume(speed int64) { b.speeds = []int64{speed} }

// speed is this peer's, from its last steps; 0 if it is not known.
func (b *balance) speed() int64 {
	if len(b.speeds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(b.speeds))[len(b.speeds)/2]
}

// enter starts a session from what all ranks have told. What was learned in the session
// before is in the speeds: the members of a session may have come from different ones.
func (b *balance) enter(policy string, all []resumeReport, microbatches, self int) error {
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

// decide asks the policy about a step of so many microbatches. self is this peer's rank.
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

// costs returns those of the ranks, in nanoseconds; nil if the policy does not know them.
func (b *balance) costs() []loadbal.Cost { return b.policy.Costs() }

// measured takes note of how long a share took to compute. One of which some was there before,
// from a session that broke, or of which nothing is computed, gives no measure of the peer's
// speed.
func (b *balance) measured(share int, whole bool, took time.Duration) {
	if b.micros = 0; whole && share > 0 {
		b.note(share, took)
	}
}

// learn goes on to a step after the one that is committed, and whose commit record has these reports. The
// policy decides about it, or about the step after it where it has been decided about early. self
// is this peer's rank.
func (b *balance) learn(ranks []rankReport, step int64, self int) {
	reports := make([]loadbal.Report, len(ranks))
	for rank, o := range ranks {
		reports[rank] = loadbal.Report{Share: b.shares[rank].Len(), Micros: o.micros, Max: int(o.maxShare)}
	}
	if b.early {
		b.target, b.coming = b.coming, b.decide(reports, b.plan.after(step), self)
		return
	}
	b.target = b.decide(reports, b.plan.after(step-1), self)
}

// sharesAhead returns the ranks' parts of the step after the open one, which has so many
// microbatches, as far as they are known.
func (b *balance) sharesAhead(microbatches int) []ledger.Set {
	shares, _ := ledger.Assign(make([]ledger.Set, len(b.shares)), b.ahead(), microbatches)
	return shares
}

// assignShares gives each rank its part of a step of which nobody holds anything: after a commit, or
// when a step has to be computed again.
func (b *balance) assignShares(s *elastic.Session, step int64) {
	b.shares, _ = ledger.Assign(make([]ledger.Set, len(b.shares)), b.wanted, b.plan.after(step-1))
	b.logShares(s, step)
}

// logShares writes to the log that the shares of a step are others than before, and why. The
// lowest rank of each launcher does, so that it stands once in each log. The short step
// at the end of a pass has other shares for no reason of its own, and is passed over.
func (b *balance) logShares(s *elastic.Session, step int64) {
	if b.plan.after(step-1) < b.plan.mostMicrobatches() {
		b.short = true
		return
	}
	old, why := b.told, b.reason()
	b.cause, b.short = "", false
	if slices.Equal(old, b.wanted) {
		return
	}
	b.told = slices.Clone(b.wanted)
	if !isReporter(s) {
		return
	}
	if old == nil {
		old = []int{} // the log has an empty list, not null
	}
	b.emit(s.View.Epoch, step, event.Shares{Old: old, New: b.told, Reason: why})
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
