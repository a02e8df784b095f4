package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// Grant admits peers that prove that they hold its key. Grants are part of the view: members issue
// grants, count their uses and revoke them by the agreement that also decides the membership. So a
// newcomer may ask any member, even after the issuer of the grant has died, and only one of two
// newcomers gets the last use.
type Grant struct {
	Key     ID     // public key that signs for a newcomer, in the form of an ID
	Issuer  ID     // the member that issued the grant; "" for a grant of the first view
	Made    int64  // time of issue, in Unix seconds
	Expiry  int64  // end of validity, in Unix seconds; 0 for no expiry
	Uses    uint64 // number of peers that the grant admits; 0 for any number
	Used    uint64 // number of peers that the grant has admitted
	Revoked bool
	Record  string // data of the user of this package, which the package only carries; at most member.MaxRecord bytes
}

// Left reports whether the grant admits another peer. It does not check the expiry.
func (g Grant) Left() bool { return !g.Revoked && (g.Uses == 0 || g.Used < g.Uses) }

// Entry is the right by which a newcomer joins.
type Entry struct {
	By  ID // key of a grant; "" if none is needed
	Was ID // the former ID of a member that comes back, for which the grant counts no further use; "" for a new peer
}

// ErrKicked means that this peer was put out on request and is never admitted again.
var ErrKicked = fmt.Errorf("%w: kicked", ErrNoView)

// toGrant converts a grant to the form of elastic/member.
func toGrant(g Grant) member.Grant {
	return member.Grant{Key: member.ID(g.Key), Issuer: member.ID(g.Issuer), Made: g.Made, Expiry: g.Expiry,
		Uses: g.Uses, Used: g.Used, Revoked: g.Revoked, Record: g.Record}
}

// fromGrant is the inverse of toGrant.
func fromGrant(g member.Grant) Grant {
	return Grant{Key: ID(g.Key), Issuer: ID(g.Issuer), Made: g.Made, Expiry: g.Expiry,
		Uses: g.Uses, Used: g.Used, Revoked: g.Revoked, Record: g.Record}
}

// Grant returns the grant of a key; ok is false if the view has none.
func (v View) Grant(key ID) (g Grant, ok bool) {
	i := slices.IndexFunc(v.Grants, func(g Grant) bool { return g.Key == key })
	if i < 0 {
		return Grant{}, false
	}
	return v.Grants[i], true
}

// View returns the present view, with the valid grants. If this peer has been in no view yet, the
// result has epoch 0 and no members.
func (g *Group) View() View {
	if !g.made() {
		return View{}
	}
	s, _ := g.current().status.now()
	return s.view
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
	return a.g.agree(ctx, what, can, member.Issue{Grant: mg}, func(v View) bool {
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
		if _, ok := d.view.Grant(key); !ok {
			return errors.New("there is no such grant, or it has expired")
		}
		return nil
	}
	return a.g.agree(ctx, what, can, member.Revoke{Key: member.ID(key)}, func(v View) bool {
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
		case len(d.view.Barred) == member.MaxBarred:
			return fmt.Errorf("%d peers have been kicked, which is the limit", member.MaxBarred)
		}
		return nil
	}
	return a.g.agree(ctx, what, can, member.Kick{Peer: member.ID(id)}, func(v View) bool {
		return slices.Contains(v.Barred, id)
	})
}

// agree passes an event to the membership machine and waits for a view for which the function done
// returns true. The function can checks in the driver's goroutine whether the event is possible.
func (i *identity) agree(ctx context.Context, what string, can func(*driver) error, e member.Event, done func(View) bool) error {
	d := i.current()
	err, ok := ask(&d.loop, func() error {
		if d.m == nil || d.view.Rank(d.ep.Self.ID) < 0 {
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

// entry returns the right by which a newcomer joins. Members of the view v need none.
func (r *requestServer) entry(id ID, v View) (Entry, error) {
	if r.cfg.Entry == nil || v.Rank(id) >= 0 {
		return Entry{}, nil
	}
	return r.cfg.Entry(id)
}
