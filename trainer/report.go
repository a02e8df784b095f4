package trainer

import (
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

// reporter tells the log and the user of stable steps, each once. It belongs to one goroutine.
type reporter struct {
	plan   plan
	emit   func(epoch uint64, step int64, body event.Body)
	told   func(StepReport)        // the user; may be nil
	digest func(step int64) string // of the parameters after the last committed step; empty if it is not taken

	reported  int64        // the last step that was
	before    outcome      // of the step before the last committed one; zero if it is not known
	witnesses []elastic.ID // members that were there when the last report was made
}

// advance takes note that the step of o is committed, after that of was.
func (p *reporter) advance(was, o outcome) {
	switch o.Step {
	case was.Step: // the same step in another copy
	case was.Step + 1:
		p.before = was
	default:
		p.before = outcome{}
	}
}

// stable takes note that all members of a view, of which this peer is one, have committed the
// last step, whose outcome is o. It reports the step once, and returns whether it was the first
// time. own is this peer's part of the last step that it has contributed to. final says that the
// job has no further step.
func (p *reporter) stable(o outcome, v elastic.View, self elastic.ID, own work, final bool) (fresh bool) {
	lost := p.unreported(o, v)
	fresh = o.Step > p.reported
	mine, took := o.share(self)
	if took && fresh {
		if final {
			lost = withNext(lost, o, self)
		}
		p.report(o, mine, own, lost)
	} else if lost != nil {
		p.report(o, share{}, own, lost)
	}
	p.reported, p.witnesses = o.Step, nil
	for _, m := range v.Members {
		p.witnesses = append(p.witnesses, m.ID)
	}
	return fresh
}

// superseded reports the last step, to which this peer has contributed as self, before others'
// copies take it to a later one. That there is a later one shows that the last is stable: its
// commit record, in which this peer declared the last step, was complete somewhere.
func (p *reporter) superseded(o outcome, self elastic.ID, own work, by int64) {
	mine, took := o.share(self)
	if !took || o.Step <= p.reported || by <= o.Step {
		return
	}
	p.report(o, mine, own, nil)
	// Who of the others is still there is not known here; the next report names those who
	// are not.
	p.reported, p.witnesses = o.Step, nil
	for _, s := range o.Shares {
		p.witnesses = append(p.witnesses, s.Peer)
	}
}

// unreported lists what members that are gone have contributed to stable steps and may
// not have reported: of the step that becomes stable all their parts, and of the one
// before those of members that were still there when it became stable. Older steps they
// had reported before they took part in these. Every member lists them: who reads the
// log takes each (peer, step) once.
func (p *reporter) unreported(o outcome, v elastic.View) []event.Contribution {
	gone := func(id elastic.ID) bool { return v.Rank(id) < 0 }
	goneSince := func(id elastic.ID) bool { return gone(id) && slices.Contains(p.witnesses, id) }
	if o.Step == p.reported {
		return contributions(o, goneSince)
	}
	lost := contributions(o, gone)
	if p.before.Step == p.reported {
		lost = append(contributions(p.before, goneSince), lost...)
	}
	return lost
}

// withNext adds the part of the peer behind self in the last outcome of a job to those of lost
// peers. That peer may be gone before it has reported, or never hear that the step is stable, and
// no later report names it.
func withNext(lost []event.Contribution, o outcome, self elastic.ID) []event.Contribution {
	at := slices.IndexFunc(o.Shares, func(s share) bool { return s.Peer == self })
	next := o.Shares[(at+1)%len(o.Shares)].Peer
	for _, c := range contributions(o, func(id elastic.ID) bool { return id == next && id != self }) {
		if !slices.ContainsFunc(lost, func(l event.Contribution) bool { return l.Peer == c.Peer && l.Step == c.Step }) {
			lost = append(lost, c)
		}
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

// report writes the last step to the log: the part that this peer has contributed, what it knows
// of that, and parts of others. It tells the user of a step that this peer took part in.
func (p *reporter) report(o outcome, mine share, own work, lost []event.Contribution) {
	rep := StepReport{
		Epoch: o.Epoch, Step: o.Step, Of: p.plan.steps, Attempt: o.Attempt, Peers: o.Peers,
		Microbatches: mine.Microbatches, ShareSamples: p.plan.step(o.Step).samplesIn(mine.Microbatches),
		Samples: int(o.Samples), Loss: o.meanLoss(),
	}
	if own.step == o.Step && mine.Peer != "" {
		rep.Recomputed, rep.Compute, rep.Comm, rep.Total = own.recomputed, own.compute, own.comm, own.total
		rep.Predicted = own.predicted
		rep.GradNorm, rep.NoiseScale = own.gradNorm, own.noiseScale
		rep.Sent, rep.Raw = own.sent, own.raw
	}
	rep.Digest = p.digest(o.Step)
	ranges := rep.Microbatches
	if ranges == nil {
		ranges = [][2]int{} // the log has an empty list, not null
	}
	p.emit(rep.Epoch, rep.Step, event.Step{
		Attempt: int(rep.Attempt), Microbatches: ranges, ShareSamples: rep.ShareSamples, Samples: rep.Samples, Loss: rep.Loss,
		Digest: rep.Digest, Recomputed: rep.Recomputed, Of: rep.Of, OfLost: lost,
		ComputeMS: milliseconds(rep.Compute), CommMS: milliseconds(rep.Comm), StepMS: milliseconds(rep.Total),
		PredictedMS: milliseconds(rep.Predicted), GradNorm: rep.GradNorm, NoiseScale: rep.NoiseScale,
		SentBytes: rep.Sent, RawBytes: rep.Raw,
	})
	if mine.Peer != "" && p.told != nil {
		p.told(rep)
	}
}

// milliseconds is the unit of times in the event log.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
