package trainer

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/audit"
	"github.com/elrun/elrun/trainer/internal/laps"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// keptSteps is the number of steps that an accusation may reach back: the audited step, the step
// whose commit record carries the fingerprints, and the step whose commit record carries the
// accusation.
const keptSteps = 3

// audits is this peer's part in the audits of a job (package audit): it publishes fingerprints of
// its own contributions, recomputes contributions of others, and votes. Methods of nil audits do
// nothing. It is not safe for concurrent use.
type audits struct {
	rate float64 // probability of an audit per step
	// dice decides which steps and members this peer audits. No other member knows its state, so
	// none can predict an audit.
	dice   *rand.Rand
	model  Model
	params []Param
	own    *exactAccumulator // this peer's contribution to the open step
	log    func(format string, args ...any)

	again contribution      // another member's contribution, recomputed
	sums  *exactAccumulator // the sums of again
	kept  [keptSteps]record // by step modulo keptSteps

	// told is the encoded fingerprint of this peer's part of the last committed step.
	told     uint64
	open     check      // audit of the open step
	waiting  check      // audit of the committed step, whose fingerprints are not published yet
	accusing accusation // published at the entry of the next session
}

// record has the data of a step that this peer needs to recompute a part of the step.
type record struct {
	// plan has the samples and microbatches of the step.
	plan    stepPlan
	epoch   uint64 // in which the step was computed
	attempt int64
	// scale is the scale of that attempt.
	scale   exact.Scale
	members []elastic.Member // by rank
	shares  []ledger.Set     // by rank
	params  [][]float32      // before the step

	committed    bool
	coefficients audit.Coefficients // drawn at the commit
	// prints are the fingerprints of all members, once they are published.
	prints []audit.Print
}

// check is an audit under way.
type check struct {
	step   int64 // audited step; 0 if there is no audit
	victim int   // rank of the audited member
	// computed is the fingerprint of the victim's part as this peer has recomputed it, and sums is
	// the fingerprint of the sums of all ranks. Both are set at the commit.
	computed, sums audit.Print
}

// accusation is the claim of this peer that a member has published a wrong fingerprint: this peer
// has computed another fingerprint of the same contribution.
type accusation struct {
	step     int64  // step of the fingerprint; 0 if there is no accusation
	accused  uint64 // result of nameOf for the accused member
	computed audit.Print
}

// newAudits returns the audits of a job, or nil if Gradients.Audit is 0. own holds the job's
// gradients.
func newAudits(cfg Config, m Model, own *exactAccumulator) *audits {
	if cfg.Gradients.Audit == 0 {
		return nil
	}
	var seed [32]byte
	// The seed is unpredictable outside of tests, so a member cannot know when it is audited.
	cryptorand.Read(seed[:]) // never fails
	if cfg.Gradients.auditSeed != 0 {
		seed = [32]byte{}
		binary.LittleEndian.PutUint64(seed[:], cfg.Gradients.auditSeed)
	}
	a := &audits{rate: cfg.Gradients.Audit, dice: rand.New(rand.NewChaCha8(seed)), model: m, params: m.Params, own: own, log: cfg.Hooks.log}
	// The gradients of a microbatch are computed in the same staging buffer, whether they are added
	// to own or to a.sums.
	size := own.layout.size()
	a.sums = &exactAccumulator{layout: own.layout, bufs: own.bufs, own: make([]int32, size), peaks: make([]exact.Peak, len(m.Params))}
	a.sums.views = cut(own.layout, a.sums.own)
	a.again.sums, a.again.clock = a.sums, new(laps.Clock)
	for i := range a.kept {
		for _, p := range m.Params {
			a.kept[i].params = append(a.kept[i].params, make([]float32, len(p.Data)))
		}
	}
	return a
}

// at returns the record of a step, or nil if there is none.
func (a *audits) at(step int64) *record {
	if r := &a.kept[step%keptSteps]; r.plan.step == step {
		return r
	}
	return nil
}

// nameOf returns the short name of a member for the reports at the entry of a session.
func nameOf(id elastic.ID) uint64 { return xxhash.Sum64String(string(id)) }

// accusation returns the pending accusation, which this peer publishes at the entry of a session.
func (a *audits) accusation() accusation {
	if a == nil {
		return accusation{}
	}
	return a.accusing
}

// enter begins a session. Audits under way are dropped, because the audited members may have left.
func (a *audits) enter() {
	if a != nil {
		a.open, a.waiting = check{}, check{}
	}
}

// contributed is called when this peer's share of the step is computed and the parameters still
// have their values from before the step. It saves the parameters, and with probability rate
// recomputes the share of a randomly chosen member.
func (a *audits) contributed(s *elastic.Session, p stepPlan, c *contribution, shares []ledger.Set, most int) {
	if a == nil || len(s.View.Members) < 2 {
		return
	}
	// The record takes over the parameter buffers of the oldest record.
	r := &a.kept[p.step%keptSteps]
	*r = record{plan: p, epoch: s.View.Epoch, attempt: c.attempt, scale: c.scale, members: s.View.Members, shares: shares, params: r.params}
	for i, param := range a.params {
		copy(r.params[i], param.Data)
	}
	a.open = check{}
	if a.dice.Float64() >= a.rate {
		return
	}
	// Choose uniformly among the other ranks.
	victim := a.dice.IntN(len(s.View.Members) - 1)
	if victim >= s.Rank {
		victim++
	}
	if shares[victim].Len() == 0 {
		return
	}
	if err := a.compute(r, victim, most, s.Comm.Err); err != nil {
		a.log("step %d: the audit of %s has ended without a result: %v", p.step, peerName(s)(victim), err)
		return
	}
	a.open = check{step: p.step, victim: victim}
}

// compute recomputes the share of a rank into a.sums, from the current parameters. It ends early
// with the error of broken.
func (a *audits) compute(r *record, rank, most int, broken func() error) error {
	a.again.reset(r.plan.step, r.attempt, r.scale, r.plan.microbatches)
	for _, micros := range a.again.calls(r.shares[rank], most) {
		if err := broken(); err != nil {
			return err
		}
		if err := a.again.add(a.model, r.plan, micros, ignore); err != nil {
			return err
		}
	}
	return nil
}

// tell adds the audit fields to this peer's report for a commit record.
func (a *audits) tell(mine *rankReport) {
	if a == nil {
		return
	}
	mine.nonce, mine.print, mine.accuses = a.dice.Uint64(), a.told, a.accusing.step > 0
}

// concluded is called just before a step is committed, while own still has the sums of the step.
// reports are the reports in the commit record. concluded draws the coefficients and computes the
// fingerprints.
func (a *audits) concluded(step int64, reports []rankReport) {
	if a == nil {
		return
	}
	a.told, a.waiting = 0, check{}
	r := a.at(step)
	if r == nil {
		return
	}
	// Every rank contributes a nonce, so no rank can know the coefficients before its own part is
	// fixed.
	var nonces []uint64
	for _, o := range reports {
		nonces = append(nonces, o.nonce)
	}
	r.committed, r.coefficients = true, audit.SeedOf(step, nonces).Draw(len(a.own.own))
	a.told = toldOf(r.coefficients.Of(a.own.own))
	if a.open.step == step {
		a.waiting = check{step, a.open.victim, r.coefficients.Of(a.sums.own), r.coefficients.Of(a.own.all)}
	}
	a.open = check{}
}

// toldOf encodes a fingerprint as a word; the word 0 means no fingerprint.
func toldOf(p audit.Print) uint64 { return (uint64(p) + 1) % (uint64(audit.None) + 1) }

// printOf is the inverse of toldOf.
func printOf(word uint64) audit.Print {
	if word == 0 || word > uint64(audit.None) {
		return audit.None
	}
	return audit.Print(word - 1)
}

// learn evaluates the fingerprints of the last committed step, which the reports of the following
// step carry. It compares this peer's audit with the fingerprints, and returns the event to be
// logged, or nil.
func (a *audits) learn(s *elastic.Session, step int64, reports []rankReport) (told event.Body) {
	if a == nil {
		return nil
	}
	r, w := a.at(step), a.waiting
	if r == nil || !r.committed || r.epoch != s.View.Epoch {
		return nil
	}
	a.waiting, r.prints = check{}, nil
	for _, o := range reports {
		r.prints = append(r.prints, printOf(o.print))
	}
	// While an accusation is pending, the others may never receive the fingerprints of this step.
	if w.step != step || a.accusing.step > 0 {
		return nil
	}
	// A difference is only announced here; the vote in the next session decides who is wrong.
	if r.prints[w.victim] != w.computed {
		a.accusing = accusation{step, nameOf(r.members[w.victim].ID), w.computed}
		return nil
	}
	// The audited fingerprint is right, but the fingerprints of all members do not add up to the
	// fingerprint of the sums: some member's part of the sums is not the part whose fingerprint it
	// published.
	if audit.Sum(r.prints) != w.sums {
		// No single member can be named.
		return event.Audit{Who: []string{}, Reason: "the sums of the step differ from the sums of the members' contributions"}
	}
	return nil
}

// vote returns this peer's vote on a member's contribution to a step. It recomputes the
// contribution from the saved parameters. If that is impossible, the vote is None.
func (a *audits) vote(step int64, accused elastic.ID, most int, broken func() error) audit.Vote {
	none := audit.Vote{Told: audit.None, Computed: audit.None}
	r := a.at(step)
	if r == nil || r.prints == nil {
		return none
	}
	rank := (elastic.View{Members: r.members}).Rank(accused)
	if rank < 0 {
		return none
	}
	// The model computes in place, so the saved parameters are swapped in for the computation.
	for i, p := range a.params {
		swapped(p.Data, r.params[i])
	}
	err := a.compute(r, rank, most, broken)
	for i, p := range a.params {
		swapped(p.Data, r.params[i])
	}
	if err != nil {
		a.log("step %d: this peer cannot vote in an audit: recomputing a part of the step failed: %v", step, err)
		return none
	}
	return audit.Vote{Told: r.prints[rank], Computed: r.coefficients.Of(a.sums.own)}
}

// swapped exchanges the elements of two vectors.
func swapped(a, b []float32) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
