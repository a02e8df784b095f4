package job

import (
	"cmp"
	"slices"
	"time"
)

// tally has what the ends of the processes say together.
type tally struct {
	failures                                                                []*process
	digests                                                                 map[string]bool
	last                                                                    *process // the last member
	well, spoiled, broke, gaveUp, refused, unclosed, released, left, kicked bool
}

// count returns the tally of the present generation, and of the processes that were in none.
func (j *Job) count() tally {
	t := tally{digests: map[string]bool{}}
	reported := false
	late := false // a program without a result has failed after the end of its group
	for _, p := range j.past {
		if p.member && p.generation != j.gen.number {
			continue
		}
		end := p.end()
		if p.member && (t.last == nil || p.out >= t.last.out) {
			t.last = p
		}
		if p.word.digest != "" && j.result(p) {
			t.digests[p.word.digest] = true
		}
		t.well = t.well || j.result(p) && p.endedWell()
		t.spoiled = t.spoiled || j.result(p) && end == Broke
		late = late || p.word.closed && end == Broke
		t.gaveUp = t.gaveUp || end == GaveUp
		t.broke = t.broke || end == Broke
		t.unclosed = t.unclosed || end == Unclosed
		t.released = t.released || p.released
		t.left = t.left || end == Left
		t.kicked = t.kicked || p.word.kicked
		t.refused = t.refused || p.word.refused
		if end == Died || end == Broke || j.result(p) && p.exit.Code != 0 {
			t.failures = append(t.failures, p)
		}
		reported = reported || p.word.done && j.result(p)
	}
	t.spoiled = t.spoiled || late && !reported
	return t
}

// outcome returns the exit status, the verdict and the cause. The cases are in the order of their
// certainty.
func (j *Job) outcome() Over {
	t := j.count()
	asked, putOut := t.left, t.kicked
	if t.last != nil {
		asked, putOut = t.last.end() == Left, t.last.word.kicked
	}
	byItself := t.broke || t.unclosed
	switch {
	case j.signal != 0:
		return Over{128 + j.signal, JobInterrupted, forNobody}
	case j.gen.mistake:
		return Over{1, JobMistaken, j.cause(t.failures)}
	case len(t.digests) > 1:
		return Over{1, JobDisagrees, forNobody}
	case t.well && !t.spoiled:
		return Over{0, JobFinished, forNobody}
	case j.hasResult():
		return Over{1, JobSpoiled, j.cause(t.failures)}
	case j.gen.phase == Failed && t.released: // processes wait that could not begin
		return Over{1, JobFailed, j.gen.culprit}
	case t.gaveUp:
		return Over{StatusGaveUp, JobGaveUp, j.cause(t.failures)}
	case putOut && !j.stopping && !byItself:
		return Over{1, JobPutOut, forNobody}
	case (asked || j.stopping) && !byItself:
		return Over{0, JobStopped, forNobody}
	case len(t.failures) > 0:
		return Over{1, JobFailed, j.cause(t.failures)}
	case t.unclosed:
		return Over{1, JobUnclosed, forNobody}
	case t.refused:
		return Over{1, JobRefused, forNobody}
	}
	return Over{0, JobGroupless, forNobody}
}

// aftermath is how long after a loss other failures may be its consequences.
const aftermath = 5 * time.Second

// cause returns the seat of the first failure in causal order: from a peer that names another one to
// that one, and so on. Without any it is a failure that the others have not survived, first one
// by a signal: the kernel closes the sockets of a killed process before its launcher learns of the
// death.
func (j *Job) cause(failures []*process) int {
	accusers := slices.DeleteFunc(slices.Clone(j.past), func(p *process) bool { return !p.word.mistake })
	all := slices.Concat(accusers, failures)
	slices.SortStableFunc(all, func(p, q *process) int { return cmp.Compare(q.suspicion(failures), p.suspicion(failures)) })
	if len(all) == 0 {
		return forNobody
	}
	p := all[0]
	for seen := map[*process]bool{}; p.word.blames != "" && !seen[p]; {
		seen[p] = true
		if p = j.names[p.word.blames]; p == nil {
			return forNobody
		}
	}
	return p.seat
}

// suspicion ranks p among the failures, as the one from which the search for the cause begins. The others
// have survived the loss of p if they went on without it, and did not fail soon after.
func (p *process) suspicion(failures []*process) (rank int) {
	if p.word.mistake {
		rank += 4
	}
	if p.survived == 0 || slices.ContainsFunc(failures, func(q *process) bool { return q != p && q.out >= p.out && q.out < p.survived+aftermath }) {
		rank += 2
	}
	if p.exit.Signal != 0 {
		rank++
	}
	return rank
}
