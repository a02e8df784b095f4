package trainer

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// work is what only this peer knows of a step that it has contributed to.
type work struct {
	step                 int64
	compute, comm, total time.Duration
	predicted            time.Duration
	recomputed           int
	gradNorm, noiseScale float64
	sent, raw            int64 // bytes of gradients, as in StepReport
}

// stable takes note that all members of a view have committed the last step: it is
// reported, once, and may be saved, by this peer or another one.
func (r *runner) stable(v elastic.View, self elastic.ID, saves bool) {
	o := r.last
	if o.Step == 0 {
		return
	}
	lost := r.unreported(v)
	fresh := o.Step > r.reported
	mine, took := o.share(self)
	if took && fresh {
		r.report(mine, lost)
	} else if lost != nil {
		r.report(share{}, lost)
	}
	r.reported, r.witnesses = o.Step, nil
	for _, m := range v.Members {
		r.witnesses = append(r.witnesses, m.ID)
	}
	if fresh {
		r.group.Stable(o.Step)
		r.saver.stable(r, saves)
	}
}

// superseded reports the last step before others' copies take this peer to a later one.
// That there is a later one shows that the last is stable: its tail, in which this peer
// declared the last step, was complete somewhere.
func (r *runner) superseded(by int64) {
	o := r.last
	mine, took := o.share(r.open.owner)
	if !took || r.void || o.Step <= r.reported || by <= o.Step || r.group.Self().ID != r.open.owner {
		return
	}
	r.report(mine, nil)
	// Who of the others is still there is not known here; the next report names those who
	// are not.
	r.reported, r.witnesses = o.Step, nil
	for _, s := range o.Shares {
		r.witnesses = append(r.witnesses, s.Peer)
	}
}

// unreported lists what members that are gone have contributed to stable steps and may
// not have reported: of the step that becomes stable all their parts, and of the one
// before those of members that were still there when it became stable. Older steps they
// had reported before they took part in these. Every member lists them: who reads the
// log takes each (peer, step) once.
func (r *runner) unreported(v elastic.View) []event.Contribution {
	gone := func(id elastic.ID) bool { return v.Rank(id) < 0 }
	goneSince := func(id elastic.ID) bool { return gone(id) && slices.Contains(r.witnesses, id) }
	if r.last.Step == r.reported {
		return contributions(r.last, goneSince)
	}
	lost := contributions(r.last, gone)
	if r.before.Step == r.reported {
		lost = append(contributions(r.before, goneSince), lost...)
	}
	return lost
}

// contributions lists those parts of a step that are not empty and whose members are
// wanted.
func contributions(o outcome, wanted func(elastic.ID) bool) []event.Contribution {
	var out []event.Contribution
	for _, s := range o.Shares {
		if len(s.Microbatches) > 0 && wanted(s.Peer) {
			out = append(out, event.Contribution{Peer: s.Peer.Short(), Step: o.Step, Microbatches: s.Microbatches})
		}
	}
	return out
}

// report writes the last step to the log: the part that this peer has contributed, and
// parts of others. It tells the user of a step that this peer took part in.
func (r *runner) report(mine share, lost []event.Contribution) {
	o := r.last
	rep := StepReport{
		Epoch: o.Epoch, Step: o.Step, Of: r.plan.steps, Attempt: o.Attempt, Peers: o.Peers,
		Microbatches: mine.Microbatches, ShareSamples: r.plan.step(o.Step).samplesIn(mine.Microbatches),
		Samples: int(o.Samples), Loss: o.meanLoss(),
	}
	if r.own.step == o.Step && mine.Peer != "" {
		rep.Recomputed, rep.Compute, rep.Comm, rep.Total = r.own.recomputed, r.own.compute, r.own.comm, r.own.total
		rep.Predicted = r.own.predicted
		rep.GradNorm, rep.NoiseScale = r.own.gradNorm, r.own.noiseScale
		rep.Sent, rep.Raw = r.own.sent, r.own.raw
	}
	if r.digestDue(o.Step) {
		rep.Digest = fmt.Sprintf("%016x", r.digest())
	}
	ranges := rep.Microbatches
	if ranges == nil {
		ranges = [][2]int{} // the log has an empty list, not null
	}
	r.group.Emit(rep.Epoch, rep.Step, event.Step{
		Attempt: int(rep.Attempt), Microbatches: ranges, ShareSamples: rep.ShareSamples, Samples: rep.Samples, Loss: rep.Loss,
		Digest: rep.Digest, Recomputed: rep.Recomputed, Of: rep.Of, OfLost: lost,
		ComputeMS: milliseconds(rep.Compute), CommMS: milliseconds(rep.Comm), StepMS: milliseconds(rep.Total),
		PredictedMS: milliseconds(rep.Predicted), GradNorm: rep.GradNorm, NoiseScale: rep.NoiseScale,
		SentBytes: rep.Sent, RawBytes: rep.Raw,
	})
	if mine.Peer != "" && r.cfg.OnStep != nil {
		r.cfg.OnStep(rep)
	}
}

// milliseconds is the unit of times in the event log.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
