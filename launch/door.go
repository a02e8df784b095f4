package launch

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// door decides who may join, for all identities of this process. Newcomers show by what right
// they come when they connect (transport/p2p), and are looked at again when they ask to be let
// in: a ticket may have been used up or revoked meanwhile. What holds stands in the view.
type door struct {
	job string

	mu    sync.Mutex
	group *elastic.Group                // nil before there is one
	shown map[elastic.ID]ticket.Request // by newcomers that were let as far as members' gates
}

// maxShown bounds the newcomers that are remembered.
const maxShown = 4096

// open lets newcomers be judged by the view of a group.
func (d *door) open(g *elastic.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group = g
}

// opened returns the group, or nil.
func (d *door) opened() *elastic.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.group
}

// answer is what a newcomer is told. It implements p2p.Door.
func (d *door) answer(newcomer elastic.ID, r ticket.Request) ticket.Answer {
	a, _ := d.judge(newcomer, r)
	if a.Verdict == ticket.In {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.shown) >= maxShown || d.shown == nil {
			d.shown = make(map[elastic.ID]ticket.Request)
		}
		d.shown[newcomer] = r
	}
	return a
}

// entry says by what right a newcomer joins that asks to be let in. It implements
// elastic.Config.Entry.
func (d *door) entry(newcomer elastic.ID) (elastic.Entry, error) {
	d.mu.Lock()
	r, ok := d.shown[newcomer]
	d.mu.Unlock()
	if !ok {
		return elastic.Entry{}, errNotShown
	}
	a, e := d.judge(newcomer, r)
	if a.Verdict == ticket.NotYet || a.Verdict == ticket.Unknown { // of a grant that this member has not heard of
		return elastic.Entry{}, errNotShown
	}
	a.Clock = time.Now().Unix()
	return e, a.Err(time.Now())
}

// errNotShown: a newcomer has not shown by what right it comes, or this member cannot tell.
var errNotShown = fmt.Errorf("it does not know by what right this peer comes: %w", elastic.ErrNotYet)

// judge looks at what a newcomer shows.
func (d *door) judge(newcomer elastic.ID, r ticket.Request) (ticket.Answer, elastic.Entry) {
	g := d.opened()
	v := elastic.View{}
	if g != nil {
		v = g.View()
	}
	switch {
	case v.Epoch == 0:
		return ticket.Answer{Verdict: ticket.NotYet}, elastic.Entry{}
	case r.Name != ticket.NameOf(d.job):
		return ticket.Answer{Verdict: ticket.OtherJob}, elastic.Entry{}
	case r.Identity != (ticket.Identity{}) && r.Identity != ticket.IdentityOf(d.job, rootOf(v)):
		return ticket.Answer{Verdict: ticket.Ended}, elastic.Entry{}
	case slices.Contains(v.Barred, newcomer):
		return ticket.Answer{Verdict: ticket.Kicked}, elastic.Entry{}
	}
	best := ticket.Answer{Verdict: ticket.Unknown}
	for i, c := range r.Claims {
		a, e := d.claim(g, v, newcomer, c)
		a.Claim = i
		switch {
		case a.Verdict == ticket.In:
			return a, e
		case a.Verdict < best.Verdict: // says more
			best = a
		}
	}
	return best, elastic.Entry{}
}

// claim looks at one claim.
func (d *door) claim(g *elastic.Group, v elastic.View, newcomer elastic.ID, c ticket.Claim) (ticket.Answer, elastic.Entry) {
	names := func(id elastic.ID) bool { return c.Names(string(id)) }
	if i := slices.IndexFunc(v.Grants, func(g elastic.Grant) bool { return names(g.Key) }); i >= 0 {
		grant := v.Grants[i]
		if !c.Proves(string(grant.Key), string(newcomer)) {
			return ticket.Answer{Verdict: ticket.Unknown}, elastic.Entry{}
		}
		return d.grant(v, grant), elastic.Entry{By: grant.Key}
	}
	if slices.ContainsFunc(v.Barred, names) {
		return ticket.Answer{Verdict: ticket.Kicked}, elastic.Entry{}
	}
	e, ok := g.Returns(names)
	if !ok || !c.Proves(string(e.Was), string(newcomer)) {
		return ticket.Answer{Verdict: ticket.Unknown}, elastic.Entry{}
	}
	return ticket.Answer{Verdict: ticket.In, Signer: string(e.Was)}, e
}

// grant says what a grant gives to who holds its key.
func (d *door) grant(v elastic.View, g elastic.Grant) ticket.Answer {
	a := ticket.Answer{Verdict: ticket.In, Signer: string(g.Key)}
	switch {
	case g.Revoked:
		a.Verdict = ticket.Revoked
		return a
	case g.Issuer == "":
		return a // of the launcher that began the job
	}
	r, issuer, err := ticket.Open([]byte(g.Record))
	if err != nil || issuer != string(g.Issuer) || r.Key != string(g.Key) || r.Job != d.job || r.Root != rootOf(v) || r.Uses != g.Uses {
		return ticket.Answer{Verdict: ticket.Unknown}
	}
	a.Verdict, a.Expiry = r.Check(g.Used, time.Now()), r.Expiry
	return a
}

// rootOf returns the key of the launcher that began the job of a view, "" if there is none.
func rootOf(v elastic.View) string {
	if len(v.Grants) > 0 && v.Grants[0].Issuer == "" {
		return string(v.Grants[0].Key)
	}
	return ""
}
