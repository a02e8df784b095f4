package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic/member"
)

// anewError ends a newcomer's wait for members. The launcher sends it when it has observed that no
// member lives. It names the members of a new first view.
type anewError struct{ first []Member }

// Error implements error.
func (anewError) Error() string { return "no member of the job is left" }

// Admin is the launcher's side of a Group: it tells what the launcher has observed, and decides who
// may be a member. The program of a peer does not need it. The methods are safe for concurrent use.
type Admin struct{ g *Group }

// Begin tells a newcomer that no member lives, and which peers form a new first view; this peer is
// one of them. Only a launcher that has started all peers can call Begin, because only such a
// launcher observes all deaths. A peer that does not wait to join ignores the call. Begin does not
// block.
func (a Admin) Begin(first []Member) {
	if a.g.made() {
		a.g.orders.endWait(anewError{first})
	}
}

// Again takes back the order to join: the launcher has observed that no member lives. It reports
// whether this peer still waits to join, and then lets it enter no view until Begin, Resume, Finished
// or Abort. So the launcher may name the peer in a first view, and no earlier member can have admitted
// it meanwhile. A peer that was put out and is about to get another identity answers with that one.
func (a Admin) Again() bool {
	for a.g.made() {
		d, open := a.g.current(), a.g.identity.isOpen()
		paused, ok := ask(&d.loop, func() bool {
			d.status.set(func(s *status) { s.paused = s.phase == outside })
			return d.status.paused()
		})
		if ok || !open {
			return paused
		}
		<-time.After(tickPeriod) // this identity has ended, and another one follows
	}
	return false
}

// Resume lets a newcomer look for members again, after Again. It does not block.
func (a Admin) Resume() {
	if a.g.made() {
		d := a.g.current()
		d.loop.do(func() { d.status.set(func(s *status) { s.paused = false }) })
	}
}

// Joins reports whether this peer is a newcomer, which asks the members of a job to let it in: its launcher has
// neither named it in a first view nor told it to wait.
func (a Admin) Joins() bool {
	if !a.g.made() {
		return false
	}
	s, _ := a.g.current().status.now()
	return s.phase == outside && !s.paused
}

// Abort tells a newcomer that there is no job to join, and why: its Next returns an error that wraps
// ErrNoView. Abort does not block.
func (a Admin) Abort(why string) {
	if a.g.made() {
		a.g.orders.endWait(fmt.Errorf("%w: %s", ErrNoView, why))
	}
}

// Finished tells a newcomer that the job has finished: its Next returns ErrFinished. Finished does not
// block.
func (a Admin) Finished() {
	if a.g.made() {
		a.g.orders.endWait(ErrFinished)
	}
}

// Dead reports that the process of a member has ended. The caller must be certain of the end, like
// a launcher that has the wait status of the process, or its word (package launch).
func (a Admin) Dead(id ID) {
	if a.g.made() {
		a.g.current().dead(id)
	}
}

// Heard returns the time since the last message of each member that this peer watches: all members
// in a small group, at most four others in a large one.
func (a Admin) Heard() map[ID]time.Duration {
	if !a.g.made() {
		return make(map[ID]time.Duration)
	}
	d := a.g.current()
	if d == nil {
		return make(map[ID]time.Duration)
	}
	out, ok := ask(&d.loop, func() map[ID]time.Duration {
		out := make(map[ID]time.Duration)
		for _, id := range d.roster.watched() {
			if p := d.roster.peerOf(id); p != nil && p.spoke {
				out[id] = max(0, time.Since(p.last))
			}
		}
		return out
	})
	if !ok {
		return make(map[ID]time.Duration)
	}
	return out
}

// Calls returns the record of the last calls of this peer, in all its sessions. It does not wait for the program, nor for a
// call.
func (a Admin) Calls() flight.Record {
	if !a.g.made() {
		return flight.New(time.Now()).Record(time.Now())
	}
	out := a.g.calls.Record(time.Now())
	if d := a.g.current(); d != nil {
		out.Peer, out.Index, out.Host, out.Step = d.ep.Self.ID.Short(), d.ep.Self.Index, d.ep.Self.Host, d.report.committed()
	}
	return out
}

// Issue asks the members to agree on a grant, and waits until they have agreed. The agreement costs
// a view change: a few round trips between the members, and a new session. A view has at most
// member.MaxGrants grants. An error that wraps the cause of ctx does not withdraw the request: the
// members may still agree on the grant later.
func (a Admin) Issue(ctx context.Context, grant Grant) error {
	what, mg := "grant "+grant.Key.Short(), toGrant(grant)
	if !a.g.made() {
		return fmt.Errorf("elastic: %s: %w", what, errNoGroup)
	}
	can := func(d *driver) error { return d.m.View().CanGrant(mg) }
	return a.g.identity.agree(ctx, what, can, member.Issue{Grant: mg}, func(v View) bool {
		_, ok := v.Grant(grant.Key)
		return ok
	})
}

// Revoke asks the members to agree that a grant admits no further peers, and waits until they have
// agreed. Peers that the grant has admitted stay members. Revoke returns the same errors as Issue,
// and an error for a key without a grant.
func (a Admin) Revoke(ctx context.Context, key ID) error {
	what := "revoke " + key.Short()
	if !a.g.made() {
		return fmt.Errorf("elastic: %s: %w", what, errNoGroup)
	}
	can := func(d *driver) error {
		if _, ok := d.roster.view.Grant(key); !ok {
			return errors.New("there is no such grant, or it has expired")
		}
		return nil
	}
	return a.g.identity.agree(ctx, what, can, member.Revoke{Key: member.ID(key)}, func(v View) bool {
		grant, ok := v.Grant(key)
		return !ok || grant.Revoked
	})
}

// Kick asks the members to agree on a view without a peer, and waits until they have agreed. From
// then on the peer is not admitted again, and neither the grant by which the peer joined nor a
// grant that the peer has issued admits anyone. The peer need not be a member. At most
// member.MaxBarred peers of a job can be kicked. Kick returns the same errors as Issue, and an
// error for this peer's own ID.
func (a Admin) Kick(ctx context.Context, id ID) error {
	what := "kick " + id.Short()
	if !a.g.made() {
		return fmt.Errorf("elastic: %s: %w", what, errNoGroup)
	}
	can := func(d *driver) error {
		switch {
		case id == d.ep.Self.ID:
			return errors.New("a peer cannot kick itself: ask another member, or let it leave")
		case len(d.roster.view.Barred) == member.MaxBarred:
			return fmt.Errorf("%d peers have been kicked, which is the limit", member.MaxBarred)
		}
		return nil
	}
	return a.g.identity.agree(ctx, what, can, member.Kick{Peer: member.ID(id)}, func(v View) bool {
		return slices.Contains(v.Barred, id)
	})
}

// Returns looks for a recent member that may come back, once, under another ID, and whose ID
// satisfies match. It returns the right by which that peer joins.
func (a Admin) Returns(match func(ID) bool) (e Entry, ok bool) {
	if !a.g.made() {
		return Entry{}, false
	}
	d := a.g.current()
	e, _ = ask(&d.loop, func() Entry {
		if d.m == nil {
			return Entry{}
		}
		by, was, ok := d.m.Returns(func(id member.ID) bool { return match(ID(id)) })
		if !ok {
			return Entry{}
		}
		return Entry{By: ID(by), Was: ID(was)}
	})
	return e, e.Was != ""
}

// agree passes an event to the membership machine and waits for a view for which the function done
// returns true. The function can checks in the driver's goroutine whether the event is possible.
func (i *identity) agree(ctx context.Context, what string, can func(*driver) error, e member.Event, done func(View) bool) error {
	d := i.current()
	err, ok := ask(&d.loop, func() error {
		if d.m == nil || d.roster.view.Rank(d.ep.Self.ID) < 0 {
			return errors.New("this peer is no member")
		}
		if err := can(d); err != nil {
			return err
		}
		d.step(e)
		return nil
	})
	if !ok {
		err = ErrNoView
	}
	for err == nil {
		s, changed := d.status.now()
		if done(s.view) {
			return nil
		}
		select {
		case <-changed:
			if s, _ := d.status.now(); s.phase != inside && !done(s.view) {
				err = errors.New("this peer is no member any more")
			}
		case <-ctx.Done():
			err = fmt.Errorf("the members have not agreed yet: %w", context.Cause(ctx))
		}
	}
	return fmt.Errorf("elastic: %s: %w", what, err)
}
