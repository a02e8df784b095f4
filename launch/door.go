package launch

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// door admits newcomers to the job, for all identities of this process. A newcomer shows its
// claims when it connects (transport/p2p). They are checked again when it asks to join, because a
// ticket may have been used up or revoked since. The view holds the valid grants. A door is safe
// for concurrent use.
type door struct {
	job string

	mu    sync.Mutex
	group *elastic.Group                // nil before the group is started
	shown map[elastic.ID]ticket.Request // claims of newcomers that passed the first check
}

// maxShown bounds the newcomers whose claims are remembered.
const maxShown = 4096

// open makes the view of a group decide about newcomers.
func (d *door) open(g *elastic.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group = g
}

// opened returns the group, or nil before open.
func (d *door) opened() *elastic.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.group
}

// answer checks the claims of a newcomer that connects. It implements p2p.Door.
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

// entry returns the grant by which a newcomer joins, when it asks to join. It implements
// elastic.Config.Entry.
func (d *door) entry(newcomer elastic.ID) (elastic.Entry, error) {
	d.mu.Lock()
	r, ok := d.shown[newcomer]
	d.mu.Unlock()
	if !ok {
		return elastic.Entry{}, errNotShown
	}
	a, e := d.judge(newcomer, r)
	if a.Verdict == ticket.NotYet || a.Verdict == ticket.Unknown { // a grant that this member does not know yet
		return elastic.Entry{}, errNotShown
	}
	a.Clock = time.Now().Unix()
	return e, a.Err(time.Now())
}

// errNotShown reports that a newcomer has not shown a claim here, or that this member cannot check
// the claim yet.
var errNotShown = fmt.Errorf("it does not know by what right this peer comes: %w", elastic.ErrNotYet)

// judge checks the claims of a newcomer against the current view and returns the best answer.
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
		case a.Verdict < best.Verdict: // a more definite verdict
			best = a
		}
	}
	return best, elastic.Entry{}
}

// claim checks one claim of a newcomer against the grants of a view.
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

// grant returns the answer to a holder of the grant's key: revoked, expired, used up or valid.
func (d *door) grant(v elastic.View, g elastic.Grant) ticket.Answer {
	a := ticket.Answer{Verdict: ticket.In, Signer: string(g.Key)}
	switch {
	case g.Revoked:
		a.Verdict = ticket.Revoked
		return a
	case g.Issuer == "":
		return a // the grant of the launcher that began the job
	}
	r, issuer, err := ticket.Open([]byte(g.Record))
	if err != nil || issuer != string(g.Issuer) || r.Key != string(g.Key) || r.Job != d.job || r.Root != rootOf(v) || r.Uses != g.Uses {
		return ticket.Answer{Verdict: ticket.Unknown}
	}
	a.Verdict, a.Expiry = r.Check(g.Used, time.Now()), r.Expiry
	return a
}

// rootOf returns the key of the launcher that began the job, "" if the view has none.
func rootOf(v elastic.View) string {
	if len(v.Grants) > 0 && v.Grants[0].Issuer == "" {
		return string(v.Grants[0].Key)
	}
	return ""
}
