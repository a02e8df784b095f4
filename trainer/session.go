package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// errNextSession ends a session after a decision that all its members have made in the same way.
var errNextSession = errors.New("left for the next session")

// goOn reports whether a session that ended with err is followed by another session.
func goOn(err error) bool {
	return errors.Is(err, collective.ErrRevoked) || errors.Is(err, errNextSession)
}

// session trains in one session until the job is finished or the session ends. It is the main
// loop: a decision point if one is due, then one attempt at a step, again and again.
func (j *job) session(ctx context.Context, s *elastic.Session) error {
	// A panic of the model from now on revokes this session, so that the others do not wait.
	j.guard.revoke = s.Comm.Revoke
	j.step.reducer.enter(s)
	if err := j.enter(ctx, s); err != nil {
		return err
	}
	for {
		if err := j.decisions.decide(ctx, s, j.state.committed()); err != nil {
			return err
		}
		if j.finished() {
			return j.end(ctx, s)
		}
		if err := j.try(ctx, s); err != nil {
			return err
		}
	}
}

// enter gathers the parts of the open step that the ranks hold, and derives this peer's share. All
// ranks have committed the same step, because Sessions.Next brings members that are behind up to date.
func (j *job) enter(ctx context.Context, s *elastic.Session) error {
	mine := j.step.entry(s)
	words := mine.encode()
	gathered := make([]uint64, len(words)*len(s.View.Members))
	if err := collective.AllGather(ctx, s.Comm.With(collective.CallOptions{For: "entry"}), gathered, words); err != nil {
		return fmt.Errorf("enter epoch %d: %w", s.View.Epoch, err)
	}
	var all []resumeReport
	var states []fingerprint
	for w := range slices.Chunk(gathered, len(words)) {
		e := decodeResumeReport(w, len(mine.exponents), len(mine.links))
		all, states = append(all, e), append(states, e.state)
	}
	// First check that all states are equal, then settle a pending accusation, then assign the open
	// step.
	if err := j.agree(s, states); err != nil {
		return err
	}
	if err := j.resolve(ctx, s, all); err != nil {
		return err
	}
	if err := j.step.enter(s, all); err != nil {
		return fmt.Errorf("enter epoch %d: %w", s.View.Epoch, err)
	}
	return nil
}

// try makes one attempt at the open step in this session: it computes this peer's share, reduces
// the sums, and applies the result. It returns nil when the step is committed, and also when all
// ranks have to compute it again with another scale. If the session breaks, the contribution keeps
// its microbatches for the next session.
//
// Between hosts the next step begins while the reduction still runs (lookAhead). Then a second
// goroutine waits for the reduction, and finish, called once, commits the step.
func (j *job) try(ctx context.Context, s *elastic.Session) error {
	t, err := j.step.contribute(ctx, s)
	if err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	// The report is made before the next step can begin, which reuses the contribution.
	mine := j.step.report()
	if !j.step.reducer.between() {
		return j.commit(s, t, t.exchange(ctx, s, mine, &j.step.reducer))
	}
	var got exchanged
	var exchange sync.WaitGroup
	exchange.Go(func() { got = t.exchange(ctx, s, mine, &j.step.reducer) })
	defer exchange.Wait() // also if the model panics
	finish := sync.OnceValue(func() error {
		exchange.Wait()
		return j.commit(s, t, got)
	})
	// At a decision point the programs decide before the next step begins.
	// Microbatches that may have ended other peers wait for the launcher's answer (retries).
	if !j.decisions.due(t.plan.step) && !j.step.retries.suspects(t.plan.step+1) {
		j.step.lookAhead(ctx, s, t, finish)
	}
	return finish()
}

// commit commits a step if its commit record is complete. If the step is not committed, none of its
// updates remain in the parameters. An error after the commit ends the session or the job.
func (j *job) commit(s *elastic.Session, t *try, got exchanged) error {
	defer j.state.pipeline.rollback() // a no-op once the step is committed
	if got.err != nil {
		return got.err
	}
	comm := time.Since(t.computed)
	if err := j.learn(s, got.reports); err != nil {
		return err
	}
	committed, err := j.step.conclude(s, t.plan, got.reports)
	if err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	if !committed {
		return nil
	}
	// The time for the early call of the next step counts for that step, not for this one.
	j.step.work.comm, j.step.work.total = comm-t.following, time.Since(t.begun)+t.claimed-t.following
	j.timings.publish(s.View, got.reports, got.exchange, j.step.work, j.step.balance.costs(), j.step.reducer.bytes())
	if err := j.group.Sessions().Committed(j.state.committed()); err != nil {
		return fmt.Errorf("after the commit of step %d: %w", j.state.committed(), err)
	}
	if err := j.accused(s, got.reports); err != nil {
		return err
	}
	// There is a later view. All ranks leave the session together, at this step boundary.
	if anyStale(got.reports) {
		return errNextSession
	}
	return nil
}

// learn evaluates a complete commit record: it checks that all ranks have the same state, passes
// on audit fingerprints and link measurements, and reports the previously committed step, which
// is stable now.
func (j *job) learn(s *elastic.Session, reports []rankReport) error {
	j.step.reducer.learn(reports)
	var states []fingerprint
	for _, other := range reports {
		states = append(states, fingerprint{other.committed, other.digest})
	}
	if err := j.agree(s, states); err != nil {
		return fmt.Errorf("after step %d: %w", j.state.committed(), err)
	}
	if found := j.step.audits.learn(s, j.state.committed(), reports); found != nil {
		j.group.Sessions().Emit(s.View.Epoch, j.state.committed(), found)
	}
	j.stable(s.View, s.Rank)
	return nil
}

// stable records that all members of v, in which this peer has the given rank, have committed the
// last step.
func (j *job) stable(v elastic.View, rank int) {
	last := j.state.last
	if last.Step > 0 && j.reporter.stable(last, v, v.Members[rank].ID, j.step.work, j.finished()) {
		j.group.Sessions().Stable(last.Step)
		j.saver.stable(j.state, rank == 0, j.finished())
	}
}

// mostResyncs is the number of times that a peer may be re-synced. A machine that diverges more
// often computes wrong results, and its peer leaves the job.
const mostResyncs = 2

// agree checks that all ranks of a session have committed the same step with the same parameters.
// If some differ, all ranks leave the session, and the differing ranks get the state of the
// others in the next session.
func (j *job) agree(s *elastic.Session, states []fingerprint) error {
	wrong, right := differing(states)
	if wrong == nil {
		return nil
	}
	var list []string
	for _, rank := range wrong {
		list = append(list, fmt.Sprintf("%s has %v", peerName(s)(rank), states[rank]))
	}
	err := fmt.Errorf("%w: %s; the others have %v", ErrDiverged, strings.Join(list, ", "), right)
	s.Comm.Revoke(err)
	// Every rank finds the same difference and leaves the session. Only the wrong ranks drop their
	// state.
	if !slices.Contains(wrong, s.Rank) {
		return fmt.Errorf("%w: %w", errNextSession, err)
	}
	j.resyncs++
	if j.resyncs > mostResyncs {
		j.group.Leave()
		return fmt.Errorf("took over the state of the others %d times already: check the memory of this host: %w", mostResyncs, err)
	}
	j.state.invalidate() // also drops the contribution that was computed from the bad state
	j.group.Sessions().Emit(s.View.Epoch, j.state.committed(), event.Resync{Who: s.View.Members[s.Rank].ID.Short(),
		Reason: fmt.Sprintf("has %v, the others have %v", states[s.Rank], right)})
	j.cfg.Hooks.log("this peer's parameters differ from the others', so it copies theirs: %v", err)
	return fmt.Errorf("%w: %w", errNextSession, err)
}

// end finishes a job in a session whose members have all committed the last step. If the session
// fails, the next session repeats the end.
func (j *job) end(ctx context.Context, s *elastic.Session) error {
	// A commit record without a step confirms to all ranks that all have committed the last step.
	// No rank leaves before that confirmation, because a member, or a newcomer of a later view, may
	// still need a copy of the state.
	mine := idleReport(j.state)
	j.step.audits.tell(&mine)
	reports, err := j.step.reducer.exchange(ctx, s, mine)
	if err == nil {
		err = j.learn(s, reports)
	}
	if err == nil {
		err = j.accused(s, reports)
	}
	if err != nil {
		return err
	}
	if anyStale(reports) {
		return errNextSession
	}
	return j.finish(s.View.Epoch, func() (*Score, error) { return evaluation{j.cfg.Evaluate}.together(ctx, s) })
}
