package job_test

import (
	"slices"

	"github.com/elrun/elrun/launch/internal/job"
)

// only tells whether all faults of the plan are of these kinds.
func (w *world) only(kinds ...string) bool {
	return !slices.ContainsFunc(w.p.faults, func(f fault) bool { return !slices.Contains(kinds, f.kind) })
}

// with tells whether a fault of the plan is of one of these kinds.
func (w *world) with(kinds ...string) bool {
	return slices.ContainsFunc(w.p.faults, func(f fault) bool { return slices.Contains(kinds, f.kind) })
}

// check checks the end of a run. The invariants during a run stand where they can break.
func (w *world) check() {
	for _, l := range w.launchers {
		if !l.ended {
			w.checkHang(l)
			continue
		}
		w.checkCause(l)
		if w.p.programs == 1 { // the result of an earlier program does not count
			w.checkZero(l)
			w.checkFailure(l)
		}
	}
	if w.gaveUp && len(w.launchers) == 1 && !w.launchers[0].sig {
		w.fail("the members of a single launcher gave up")
	}
	if w.halfGaveUp && len(w.launchers) == 2 && !w.launchers[0].sig && !w.launchers[1].sig {
		w.fail("the members gave up, though the other half has ended for certain")
	}
}

// checkHang says what a launcher waits for that has not ended.
func (w *world) checkHang(l *launcher) {
	result := slices.ContainsFunc(w.procs, func(p *peer) bool { return p.done })
	for _, p := range w.procs {
		if p.l == l && p.state != gone {
			w.fail("hang: process in state %s (stopped %v), result %v", p.state, p.stopped, result)
			return
		}
	}
	w.fail("hang: no process")
}

// kept tells whether a peer of l has the result, and whether one of these has kept it to its end.
func (w *world) kept(l *launcher) (done, kept bool) {
	for _, p := range w.procs {
		if p.l == l && p.done {
			done, kept = true, kept || p.state == gone && !p.spoils && !p.root
		}
	}
	return done, kept
}

func (w *world) has(l *launcher, f func(*peer) bool) bool {
	return slices.ContainsFunc(w.procs, func(p *peer) bool { return p.l == l && f(p) })
}

// checkZero checks that status 0 is true.
func (w *world) checkZero(l *launcher) {
	done, kept := w.kept(l)
	verdict := l.over.Verdict
	if verdict == job.JobFinished && !done {
		w.fail("says finished without a result")
	}
	if l.over.Status != 0 {
		return
	}
	asked := l.stop || w.with("term", "scale")
	switch {
	case verdict != job.JobFinished && verdict != job.JobStopped && w.has(l, func(p *peer) bool { return p.g != nil }):
		w.fail("status 0 with verdict %d", verdict)
	case w.has(l, func(p *peer) bool { return p.spoiled }) &&
		// Without a result only the status tells, and that of a peer that was asked does not count.
		!(w.p.silent && (len(w.groups) > 1 || asked || w.with("kick"))):
		w.fail("status 0 though a peer could not keep the result")
	case l.mistakes > 0 && done:
		w.fail("status 0 after a mistake")
	case verdict == job.JobStopped && !asked:
		w.fail("says stopped though nobody was asked")
	case !kept && !asked && !w.has(l, func(p *peer) bool { return p.silent }):
		w.fail("status 0 without a result")
	}
}

// checkFailure checks that another status has a reason.
func (w *world) checkFailure(l *launcher) {
	if l.over.Status == 0 {
		return
	}
	done, kept := w.kept(l)
	mistake := slices.ContainsFunc(w.groups, func(g *group) bool { return g.mistake })
	switch {
	case kept && !mistake && !l.sig && !(w.p.silent && w.with("scale", "term")) && w.only("kill", "slow kill", "kill all", "term", "halt", "halt newcomer", "scale", "fence"):
		w.fail("status %d though the result is there", l.over.Status)
	case w.p.joined == 0 && w.only("kill", "slow kill", "halt", "halt newcomer", "fence") && len(w.p.faults) < w.p.peers:
		w.fail("status %d though a peer was never disturbed", l.over.Status)
	case !done && !l.sig && w.only("kill", "slow kill") && len(w.p.faults) <= w.p.restarts && w.p.joined == 0:
		w.fail("status %d though restarts were left", l.over.Status)
	}
}

// checkCause checks that the named cause is a failure without another cause.
func (w *world) checkCause(l *launcher) {
	if seat := l.over.Cause; seat >= 0 && l.roots > 0 && w.p.programs == 1 && !w.has(l, func(p *peer) bool { return p.seat == seat && p.root }) {
		w.fail("wrong cause: peer %d", seat)
	}
}
