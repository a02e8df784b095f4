package trainer

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/internal/laps"
)

// work holds this peer's own measurements of the last step to which it contributed.
type work struct {
	// step is the step that was measured.
	step          int64
	compute, comm time.Duration // as in StepReport
	try           time.Duration // from the begin of the last try to the new parameters
	times         laps.Times    // zero if this peer learned of the commit from others
	began         time.Time     // as in event.Times
	waitFor       elastic.ID    // the rank that computed last; "" for this one
	rate          float64       // learning rate; 0 if unknown
	metrics       map[string]float64
	predicted     time.Duration // expected computing time; 0 if unknown

	recomputed, stolen   int     // microbatches computed a second time, and taken from others
	gradNorm, noiseScale float64 // as in StepReport
	sent, raw            int64   // bytes of gradients, as in StepReport
}

// reporter writes stable steps to the event log and passes them to Hooks.OnStep, each step once. It
// is not safe for concurrent use.
type reporter struct {
	// plan tells how many steps the job has, for the progress in reports.
	plan plan
	emit func(epoch uint64, step int64, body event.Body)
	told func(StepReport) // Hooks.OnStep; may be nil
	// digest returns the digest of the parameters after the last committed step; "" if it is not
	// due.
	digest func(step int64) string

	reported int64 // last reported step
	ended    bool  // it was reported as the last step of the job
	// before is the outcome of the step before the last committed step; zero if unknown.
	before    outcome
	witnesses []elastic.ID // members at the time of the last report
}

// advance records that the step of o is committed, after the step of was.
func (r *reporter) advance(was, o outcome) {
	switch o.Step {
	case was.Step: // the same step from another copy of the state
	case was.Step + 1:
		r.before = was
	default:
		r.before = outcome{}
	}
}

// stable records that all members of view v, of which this peer is one, have committed the last
// step, with outcome o. It reports the step once; fresh is true for the first report of the step.
// own has the measurements of the last step to which this peer contributed. final is true if the
// job has no further step.
func (r *reporter) stable(o outcome, v elastic.View, self elastic.ID, own work, final bool) (fresh bool) {
	lost := r.unreported(o, v)
	fresh = o.Step > r.reported
	mine, took := o.share(self)
	if took && fresh {
		if final {
			// No further step would report these contributions.
			lost = withNext(lost, o, self)
		}
		r.report(o, mine, own, lost)
	} else if lost != nil {
		r.report(o, share{}, own, lost)
	}
	r.reported, r.ended, r.witnesses = o.Step, final, nil
	for _, m := range v.Members {
		r.witnesses = append(r.witnesses, m.ID)
	}
	return fresh
}

// superseded reports the last step, to which this peer contributed as self, before another member's
// copy moves this peer to a later step. The last step is stable if a later step is committed: the
// commit record of that step, in which this peer declared the last step committed, was complete at
// some rank.
func (r *reporter) superseded(o outcome, self elastic.ID, own work, by int64) {
	mine, took := o.share(self)
	if !took || o.Step <= r.reported || by <= o.Step {
		return
	}
	r.report(o, mine, own, nil)
	// The current members are unknown here, so every contributor counts as a member. The next report
	// then names the parts of members that are gone.
	r.reported, r.ended, r.witnesses = o.Step, false, nil
	for _, s := range o.Shares {
		r.witnesses = append(r.witnesses, s.Peer)
	}
}

// unreported lists contributions of members that are gone and may not have reported them. For the
// step that becomes stable, it lists the parts of all missing members. For the step before, it lists
// the parts of members that have gone since that step became stable. Parts of older steps have been
// reported, because a member reports them before it contributes to these two steps. Every member
// lists the parts: readers of the log count each (peer, step) once.
func (r *reporter) unreported(o outcome, v elastic.View) []event.Contribution {
	gone := func(id elastic.ID) bool { return v.Rank(id) < 0 }
	goneSince := func(id elastic.ID) bool { return gone(id) && slices.Contains(r.witnesses, id) }
	if o.Step == r.reported {
		// The report of the last step of a job has the part of the next peer, see withNext.
		return contributions(o, func(id elastic.ID) bool { return goneSince(id) && !(r.ended && !gone(o.previous(id))) })
	}
	lost := contributions(o, gone)
	if r.before.Step == r.reported {
		lost = append(contributions(r.before, goneSince), lost...)
	}
	return lost
}

// withNext returns lost with one more part: the part of the peer after self in the last outcome of
// a job. That peer may die before it reports its part, or may not learn that the step is stable,
// and there is no later step whose report could name it.
func withNext(lost []event.Contribution, o outcome, self elastic.ID) []event.Contribution {
	for _, c := range contributions(o, func(id elastic.ID) bool { return o.previous(id) == self && id != self }) {
		if !slices.ContainsFunc(lost, func(l event.Contribution) bool { return l.Peer == c.Peer && l.Step == c.Step }) {
			lost = append(lost, c)
		}
	}
	return lost
}

// contributions lists the non-empty parts of a step whose members are wanted.
func contributions(o outcome, wanted func(elastic.ID) bool) []event.Contribution {
	var out []event.Contribution
	for _, s := range o.Shares {
		if len(s.Microbatches) > 0 && wanted(s.Peer) {
			out = append(out, event.Contribution{Peer: s.Peer.Short(), Step: o.Step, Microbatches: s.Microbatches})
		}
	}
	return out
}

// report writes the last step to the event log: this peer's part, its measurements, and lost parts
// of others. It calls the user's OnStep if this peer was a member in the step.
func (r *reporter) report(o outcome, mine share, own work, lost []event.Contribution) {
	rep := StepReport{
		Epoch: o.Epoch, Step: o.Step, Of: r.plan.last(), Attempt: o.Attempt, Peers: o.Peers,
		Microbatches: mine.Microbatches, ShareSamples: r.plan.step(o.Step).samplesIn(mine.Microbatches),
		Samples: int(o.Samples), Loss: o.meanLoss(),
	}
	// Measurements exist only for the last step that this peer has contributed to.
	var times event.Times
	rate, metrics := 0.0, map[string]float64(nil)
	if own.step == o.Step && mine.Peer != "" {
		rep.Recomputed, rep.Compute, rep.Comm, rep.Total = own.recomputed, own.compute, own.comm, own.times.Total()
		times, rate, metrics = own.parts(), own.rate, own.metrics
		rep.Predicted, rep.Stolen = own.predicted, own.stolen
		rep.GradNorm, rep.NoiseScale = own.gradNorm, own.noiseScale
		rep.Sent, rep.Raw = own.sent, own.raw
	}
	rep.Digest = r.digest(o.Step)
	ranges := rep.Microbatches
	if ranges == nil {
		ranges = [][2]int{} // the log has an empty list, not null
	}
	r.emit(rep.Epoch, rep.Step, event.Step{
		Attempt: int(rep.Attempt), Microbatches: ranges, ShareSamples: rep.ShareSamples, Samples: rep.Samples, Loss: rep.Loss,
		Digest: rep.Digest, Recomputed: rep.Recomputed, Stolen: rep.Stolen, Of: rep.Of, OfLost: lost,
		ComputeMS: milliseconds(rep.Compute), CommMS: milliseconds(rep.Comm), StepMS: milliseconds(rep.Total),
		Times: times, LR: rate, Metrics: metrics,
		PredictedMS: milliseconds(rep.Predicted), GradNorm: rep.GradNorm, NoiseScale: rep.NoiseScale,
		SentBytes: rep.Sent, RawBytes: rep.Raw,
	})
	if mine.Peer != "" && r.told != nil {
		r.told(rep)
	}
}

// parts returns the parts of the time of the step, for the log.
func (w work) parts() event.Times {
	of := func(p laps.Part) float64 { return milliseconds(w.times[p]) }
	return event.Times{Began: w.began, LostMS: of(laps.Lost), PointMS: of(laps.Point), DataMS: of(laps.Data), WaitMS: of(laps.Wait),
		WaitFor: w.waitFor.Short(), ReduceMS: of(laps.Reduce), ApplyMS: of(laps.Apply), CommitMS: of(laps.Commit)}
}

// milliseconds converts a duration to the unit of times in the event log.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
