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

// balance decides how many microbatches each rank of a session computes. Its inputs are the same at
// all ranks, because they were gathered or reduced before, so all ranks make the same decision.
// Only the local fields differ between peers: each peer sends them to the others in its reports.
type balance struct {
	plan plan
	// policy decides the shares. Each session has a new one.
	policy loadbal.Policy
	target target       // for the open step
	shares []ledger.Set // microbatches of each rank in the step open
	open   int64        // the step that shares divides: the open step, or an earlier one after a copy of a later state
	// coming is the target of the step after the open step. With Gradients.Delay a peer needs its share
	// of that step before the open step is committed, so coming is decided from measurements that
	// are one step older.
	coming    target
	pipelined bool // shares are decided one step early (Gradients.Delay)
	// decided has the last decision of this session for each number of microbatches.
	decided map[int][]int
	emit    func(epoch uint64, step int64, body event.Body)

	// State of the event log.
	told  []int  // wanted, as last logged
	batch int    // samples of a full step, as last logged; 0 at the start
	cause string // reason for the next change of shares, if a new session causes it
	// short is set if a short step lies between the last logged step and the open step.
	short bool

	// Local knowledge of this peer.
	// most bounds the share of this peer, in microbatches; 0 means no bound.
	most int
	// micros is the time that this peer has computed its share of the open step, in microseconds; 0
	// if the time does not show the peer's speed.
	micros int64
	// speeds are the speeds of this peer in its last steps, in the unit of loadbal.Speed.
	speeds []int64
}

// target is a policy's decision for one step.
type target struct {
	wanted []int  // microbatches of each rank
	why    string // the policy's reason for a change since the previous step
	// predicted is the expected computing time of this peer's share; 0 if unknown.
	predicted time.Duration
}

// speedWindow is the number of steps whose speeds a peer carries into the next session. The
// median of these speeds ignores a single step that another load slowed down.
const speedWindow = 5

// note records the computing time of a share that was computed without interruption.
func (b *balance) note(share int, took time.Duration) {
	b.micros = max(1, took.Microseconds())
	b.speeds = append(b.speeds, loadbal.Speed(share, b.micros))
	if len(b.speeds) > speedWindow {
		b.speeds = b.speeds[1:]
	}
}

// assume replaces the measured speeds of this peer by one speed.
func (b *balance) assume(speed int64) { b.speeds = []int64{speed} }

// speed returns the median of this peer's last speeds; 0 if none is known.
func (b *balance) speed() int64 {
	if len(b.speeds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(b.speeds))[len(b.speeds)/2]
}

// enter starts a session with the reports that all ranks gave at its entry. The policy starts
// afresh, because the members may come from different sessions. The speeds that they measured in
// those sessions are in the reports.
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
	b.decided = make(map[int][]int)
	// cause is the reason for the next event about shares.
	b.cause = "the members have changed"
	if b.told == nil {
		b.cause = "start"
	}
	b.target = b.decide(bounds, microbatches, self)
	b.coming = b.target
	return nil
}

// decide asks the policy for the target of a step of the given number of microbatches. self is
// this peer's rank.
func (b *balance) decide(reports []loadbal.Report, microbatches, self int) (d target) {
	if microbatches == 0 { // no such step
		return target{}
	}
	d.wanted, d.why = b.policy.Next(reports, microbatches)
	b.decided[microbatches] = d.wanted
	d.predicted = time.Duration(b.policy.Forecast()[self]) * time.Microsecond
	return d
}

// ahead returns the wanted microbatches of each rank in a step after the open step. If shares are
// not decided early, it is an estimate: the last decision for as many microbatches, because policies
// keep shares, also over a short step at the end of a pass.
func (b *balance) ahead(microbatches int) []int {
	if b.pipelined {
		return b.coming.wanted
	}
	if last := b.decided[microbatches]; last != nil {
		return last
	}
	if costs := b.costs(); costs != nil {
		return b.policy.Settled(costs, microbatches)
	}
	return b.target.wanted
}

// costs returns the costs of the ranks, in nanoseconds; nil if the policy does not know them.
func (b *balance) costs() []loadbal.Cost { return b.policy.Costs() }

// measured records how long a number of computed microbatches took. It ignores an empty share, and a
// share of which a part was computed earlier, in a session that has broken: the time of such a share
// does not give the peer's speed. If other microbatches were computed than the share has, because of
// thefts, it records the time of the share at the same speed: policies learn how a time follows from
// a share, and a peer that steals ends with the others whatever its share was.
func (b *balance) measured(share, computed int, whole bool, took time.Duration) {
	b.micros = 0
	if whole && share > 0 && computed > 0 {
		b.note(share, time.Duration(float64(took)*float64(share)/float64(computed)))
	}
}

// learn advances to step, the step after the committed step, with the reports of the commit
// record. The policy decides the shares of that step, or, if shares are decided early, of the step
// after it. self is this peer's rank.
func (b *balance) learn(ranks []rankReport, step int64, self int) {
	reports := make([]loadbal.Report, len(ranks))
	for rank, o := range ranks {
		reports[rank] = loadbal.Report{Share: b.shares[rank].Len(), Micros: o.micros, Max: int(o.maxShare)}
	}
	if b.pipelined {
		b.target, b.coming = b.coming, b.decide(reports, b.plan.after(step), self)
		return
	}
	b.target = b.decide(reports, b.plan.after(step-1), self)
}

// sharesAhead assigns the microbatches of a step after the open step to the ranks, by the result of
// ahead. microbatches is the number of microbatches in that step.
func (b *balance) sharesAhead(microbatches int) []ledger.Set {
	shares, _ := ledger.Assign(make([]ledger.Set, len(b.shares)), b.ahead(microbatches), microbatches)
	return shares
}

// assigned returns the steps that members of the last session may have computed at its end, with
// their shares: the step open, and the step after it if overlap is set, or if this peer has copied
// a state in which the step open is committed.
func (b *balance) assigned(committed int64, overlap bool) map[int64][]ledger.Set {
	steps := map[int64][]ledger.Set{b.open: b.shares}
	if n := b.plan.after(b.open); len(b.shares) > 0 && n > 0 && (overlap || b.open <= committed) {
		steps[b.open+1] = b.sharesAhead(n)
	}
	return steps
}

// assignShares assigns the microbatches of a step when no rank holds any of them: after a commit,
// or for another attempt at the same step.
func (b *balance) assignShares(s *elastic.Session, step int64) {
	b.shares, _ = ledger.Assign(make([]ledger.Set, len(b.shares)), b.target.wanted, b.plan.after(step-1))
	b.open = step
	b.logShares(s, step)
}

// logShares logs the shares, with the reason, if they differ from the last logged shares. The lowest
// rank of each launcher logs, so that the event log of each launcher has one entry. logShares skips
// the short step at the end of a pass, whose shares always differ from those of a full step.
func (b *balance) logShares(s *elastic.Session, step int64) {
	b.logBatch(s, step)
	if b.plan.after(step-1) < b.plan.fullMicrobatches(step) {
		b.short = true
		return
	}
	old, why := b.told, b.reason()
	b.cause, b.short = "", false
	if slices.Equal(old, b.target.wanted) {
		return
	}
	b.told = slices.Clone(b.target.wanted)
	if !isReporter(s) {
		return
	}
	if old == nil {
		old = []int{} // the log has an empty list, not null
	}
	b.emit(s.View.Epoch, step, event.Shares{Old: old, New: b.told, Reason: why})
}

// logBatch logs that the batch has grown. A peer that has just begun or joined logs nothing, because
// it does not know the batch before.
func (b *balance) logBatch(s *elastic.Session, step int64) {
	old, batch := b.batch, b.plan.walk().At(step).Batch
	b.batch = batch
	if old == 0 || old == batch {
		return
	}
	b.cause = fmt.Sprintf("the batch has grown to %d samples", batch)
	if isReporter(s) {
		_, gain := b.plan.scheduled(step)
		b.emit(s.View.Epoch, step, event.Growth{Old: old, New: batch, NoiseScale: b.plan.walk().At(step).Noise, Gain: gain})
	}
}

// reason returns why the shares of a full step differ from the logged ones. The policy's reason
// explains the difference from the previous step. After a short step the logged shares are older,
// so reason names the rank with the largest change.
func (b *balance) reason() string {
	switch {
	case b.cause != "":
		return b.cause
	case !b.short:
		return b.target.why
	}
	most := 0
	for rank := range b.target.wanted {
		if distance(b.target.wanted[rank], b.told[rank]) > distance(b.target.wanted[most], b.told[most]) {
			most = rank
		}
	}
	return fmt.Sprintf("rank %d: %d to %d microbatches, measured in the short step at the end of the pass", most, b.told[most], b.target.wanted[most])
}

// distance returns |a-b|.
func distance(a, b int) int { return max(a-b, b-a) }
