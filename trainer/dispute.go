package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/internal/audit"
)

// ErrAudit reports that this peer was put out of the group: most members have computed another
// result than this peer, for its own part of a step or for a part that it audited. Its machine has
// bad memory, or it runs another program.
var ErrAudit = errors.New("put out by an audit")

// errAccused ends a session in which a member accuses another. The vote takes place at the entry of
// the next session, because no call of a model is under way there.
var errAccused = errors.New("a member accuses another in the audit of a step")

// accused ends the session if a rank accuses another in a commit record.
func (j *job) accused(s *elastic.Session, reports []rankReport) error {
	if !slices.ContainsFunc(reports, func(o rankReport) bool { return o.accuses }) {
		return nil
	}
	s.Comm.Revoke(errAccused)
	return fmt.Errorf("%w: %w", errNextSession, errAccused)
}

// resolve decides an accusation with which a rank has entered the session: all ranks vote, and
// audit.Judge names the ranks that are wrong. These ranks are put out of the group, and the other
// ranks go on to the next session.
func (j *job) resolve(ctx context.Context, s *elastic.Session, all []resumeReport) error {
	a := j.step.audits
	if a == nil {
		return nil
	}
	a.enter()
	c, accused, step := claims(s.View, all)
	if accused < 0 {
		a.accusing = accusation{} // the accused member is gone, so there is nobody to judge
		return nil
	}
	idle := s.Busy("auditing")
	mine := a.vote(step, s.View.Members[accused].ID, j.step.together(), s.Comm.Err)
	idle()
	words := make([]uint64, 2*len(s.View.Members))
	send := []uint64{uint64(mine.Told), uint64(mine.Computed)}
	if err := collective.AllGather(ctx, s.Comm.With(collective.CallOptions{For: "audit"}), words, send); err != nil {
		return fmt.Errorf("audit of step %d: %w", step, err)
	}
	// The words come from other members and may have any value.
	var votes []audit.Vote
	for w := range slices.Chunk(words, 2) {
		votes = append(votes, audit.Vote{Told: min(audit.Print(w[0]), audit.None), Computed: min(audit.Print(w[1]), audit.None)})
	}
	a.accusing = accusation{}
	j.awaitOthers(ctx, s)
	return j.execute(ctx, s, step, c, audit.Judge(c, votes))
}

// kickPatience bounds the wait for a view without the ranks that were put out.
const kickPatience = 5 * time.Second

// kick puts ranks of a view out for good. All members kick the same ranks.
func (j *job) kick(ctx context.Context, v elastic.View, ranks []int) {
	ctx, cancel := context.WithTimeout(ctx, kickPatience)
	defer cancel()
	for _, rank := range ranks {
		if err := j.group.Admin().Kick(ctx, v.Members[rank].ID); err != nil {
			j.cfg.Hooks.log("peer %s could not be put out of the group: %v", v.Members[rank].ID.Short(), err)
		}
	}
}

// decisionPatience bounds the wait until the other members have the decision.
const decisionPatience = 2 * time.Second

// awaitOthers waits until all members have the decision. If a member were put out before it has the
// decision, it would not learn the reason, and would join again under another ID.
func (j *job) awaitOthers(ctx context.Context, s *elastic.Session) {
	ctx, cancel := context.WithTimeout(ctx, decisionPatience)
	defer cancel()
	// After an error some member may lack the decision; this peer goes on all the same.
	_ = collective.Barrier(ctx, s.Comm.With(collective.CallOptions{For: "audit"}))
}

// claims returns the accusation of the lowest rank that accuses another member of the view; accused
// is negative if no rank does.
func claims(v elastic.View, all []resumeReport) (c audit.Claims, accused int, step int64) {
	for rank, e := range all {
		if e.accusing.step == 0 {
			continue
		}
		accused = slices.IndexFunc(v.Members, func(m elastic.Member) bool { return nameOf(m.ID) == e.accusing.accused })
		if accused >= 0 && accused != rank {
			return audit.Claims{Accused: accused, Auditor: rank, Computed: e.accusing.computed}, accused, e.accusing.step
		}
	}
	return audit.Claims{}, -1, 0
}

// execute carries out the decision about a step. Without a majority nobody is put out, and execute
// only logs the accused and the auditor: one of the two is wrong.
func (j *job) execute(ctx context.Context, s *elastic.Session, step int64, c audit.Claims, v audit.Verdict) error {
	told, wrong := event.Audit{Out: len(v.Wrong) > 0, For: v.For, Of: v.Of}, v.Wrong
	if !told.Out {
		wrong = []int{c.Accused, c.Auditor}
		slices.Sort(wrong)
	}
	for _, rank := range wrong {
		told.Who = append(told.Who, s.View.Members[rank].ID.Short())
	}
	j.group.Sessions().Emit(s.View.Epoch, step, told)
	if !told.Out {
		return nil
	}
	err := fmt.Errorf("audit of step %d: the results of %d of %d members differ from the result of %s: %w", step, v.For, v.Of, peerName(s)(wrong[0]), ErrAudit)
	if slices.Contains(wrong, s.Rank) {
		s.Comm.Revoke(err)
		j.group.Leave()
		return err
	}
	s.Comm.Revoke(err)
	if all := len(s.View.Members); 2*(all-len(wrong)) > all { // a kick needs a majority; without it the members in wrong leave by themselves
		j.kick(ctx, s.View, wrong)
	}
	return fmt.Errorf("%w: %w", errNextSession, err)
}
