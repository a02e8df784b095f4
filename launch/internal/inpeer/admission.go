package inpeer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// admission admits newcomers to the job, for all identities of this process. A newcomer shows its
// claims when it connects (transport/p2p). The claims are checked again when the newcomer asks to
// join, because a ticket may have been used up or revoked in between. The view holds the valid
// grants. An admission is safe for concurrent use.
type admission struct {
	job       string        // name of the job
	decidable chan struct{} // closed when this process has its first view
	viewed    sync.Once     // closes decidable

	// mu guards the fields below.
	mu     sync.Mutex
	group  *elastic.Group                // nil before the group is started
	claims map[elastic.ID]ticket.Request // claims of newcomers that passed the first check
	early  []p2p.Obituary                // of peers that are in no view here, the latest last
}

const (
	// maxClaims bounds the newcomers whose claims are remembered.
	maxClaims = 4096
	// maxEarly bounds the obituaries that are remembered, which nobody can check yet.
	maxEarly = 256
)

// newAdmission returns the admission for a job, which cannot decide yet.
func newAdmission(job string) *admission {
	return &admission{job: job, decidable: make(chan struct{})}
}

// onView unblocks the waiting calls of answer when the first view is known, and buries the members of v
// whose obituaries came before v. It implements elastic.Config.OnView.
func (ad *admission) onView(v elastic.View) {
	ad.decide()
	if dead, _ := ad.mourn(v); len(dead) > 0 {
		go func() { _, _ = ad.bury(dead) }() // the group takes deaths only after this call has returned
	}
}

// decide unblocks the waiting calls of answer if the group has a view.
func (ad *admission) decide() {
	if g := ad.currentGroup(); g != nil && g.View().Epoch > 0 {
		ad.viewed.Do(func() { close(ad.decidable) })
	}
}

// setGroup sets the group whose view decides about newcomers.
func (ad *admission) setGroup(g *elastic.Group) {
	ad.mu.Lock()
	ad.group = g
	ad.mu.Unlock()
	ad.decide() // the group may have a view already
}

// currentGroup returns the group, or nil before setGroup.
func (ad *admission) currentGroup() *elastic.Group {
	ad.mu.Lock()
	defer ad.mu.Unlock()
	return ad.group
}

// answer checks the claims of a newcomer that connects. It implements p2p.AdmissionPolicy. It waits
// for the first view or the end of ctx, because this process may be a newcomer, too, and newcomers
// ask each other.
func (ad *admission) answer(ctx context.Context, newcomer elastic.ID, r ticket.Request) ticket.Answer {
	select {
	case <-ad.decidable:
	case <-ctx.Done():
	}
	a, _ := ad.judge(newcomer, r)
	if a.Decision == ticket.In {
		ad.mu.Lock()
		defer ad.mu.Unlock()
		if len(ad.claims) >= maxClaims || ad.claims == nil {
			// Drop all claims to bound the memory that holders of tickets can use. Newcomers whose
			// claims were dropped must prove them again.
			ad.claims = make(map[elastic.ID]ticket.Request)
		}
		ad.claims[newcomer] = r
	}
	return a
}

// grantOf returns the grant by which a newcomer joins, when it asks to join. It implements
// elastic.Config.Entry.
func (ad *admission) grantOf(newcomer elastic.ID) (elastic.Entry, error) {
	ad.mu.Lock()
	r, ok := ad.claims[newcomer]
	ad.mu.Unlock()
	if !ok {
		return elastic.Entry{}, errNoClaim
	}
	a, e := ad.judge(newcomer, r)
	if slices.Contains([]ticket.Decision{ticket.NotYet, ticket.Outside, ticket.Unknown}, a.Decision) { // a grant that this member does not know yet
		return elastic.Entry{}, errNoClaim
	}
	a.Clock = time.Now().Unix()
	return e, a.Err(time.Now())
}

// errNoClaim reports that a newcomer has not shown a claim here, or that this member cannot check
// the claim yet.
var errNoClaim = fmt.Errorf("does not know the ticket of the newcomer yet: %w", elastic.ErrNotYet)

// judge checks the claims of a newcomer against the current view. It returns the most definite
// decision of all claims, so that the newcomer learns why it is refused.
func (ad *admission) judge(newcomer elastic.ID, r ticket.Request) (ticket.Answer, elastic.Entry) {
	g := ad.currentGroup()
	v := elastic.View{}
	if g != nil {
		v = g.View()
	}
	switch {
	case v.Epoch == 0 && g != nil && g.Admin().Joins():
		return ticket.Answer{Decision: ticket.Outside}, elastic.Entry{}
	case v.Epoch == 0:
		return ticket.Answer{Decision: ticket.NotYet}, elastic.Entry{}
	case r.Name != ticket.NameOf(ad.job):
		return ticket.Answer{Decision: ticket.OtherJob}, elastic.Entry{}
	case r.Identity != (ticket.Identity{}) && r.Identity != ticket.IdentityOf(ad.job, rootOf(v)):
		return ticket.Answer{Decision: ticket.Ended}, elastic.Entry{}
	case slices.Contains(v.Barred, newcomer):
		return ticket.Answer{Decision: ticket.Kicked}, elastic.Entry{}
	}
	best := ticket.Answer{Decision: ticket.Unknown}
	for i, c := range r.Claims {
		a, e := ad.claim(g, v, newcomer, c)
		a.Claim = i
		switch {
		case a.Decision == ticket.In:
			return a, e
		case a.Decision < best.Decision: // a more definite decision
			best = a
		}
	}
	return best, elastic.Entry{}
}

// claim checks one claim of a newcomer against the grants of a view.
func (ad *admission) claim(g *elastic.Group, v elastic.View, newcomer elastic.ID, c ticket.Claim) (ticket.Answer, elastic.Entry) {
	names := func(id elastic.ID) bool { return c.Names(string(id)) }
	// A claim names its signer by a hash, so the signer is found by comparing the keys of all
	// grants.
	if i := slices.IndexFunc(v.Grants, func(g elastic.Grant) bool { return names(g.Key) }); i >= 0 {
		grant := v.Grants[i]
		if !c.Proves(string(grant.Key), string(newcomer)) {
			return ticket.Answer{Decision: ticket.Unknown}, elastic.Entry{}
		}
		return ad.grant(v, grant), elastic.Entry{By: grant.Key}
	}
	// No grant has the key, so the signer may be a former member. A kicked member gets the decision
	// Kicked.
	if slices.ContainsFunc(v.Barred, names) {
		return ticket.Answer{Decision: ticket.Kicked}, elastic.Entry{}
	}
	// A lost member may join again once, under a new ID that the key of its old ID has signed.
	e, ok := g.Admin().Returns(names)
	if !ok || !c.Proves(string(e.Was), string(newcomer)) {
		return ticket.Answer{Decision: ticket.Unknown}, elastic.Entry{}
	}
	return ticket.Answer{Decision: ticket.In, Signer: string(e.Was)}, e
}

// grant returns the answer to a holder of the grant's key: revoked, expired, used up or valid. The
// record of a ticket is signed by the member that issued it. A record that does not fit its grant
// or this job was forged by a member, and counts as no grant at all.
func (ad *admission) grant(v elastic.View, g elastic.Grant) ticket.Answer {
	a := ticket.Answer{Decision: ticket.In, Signer: string(g.Key)}
	switch {
	case g.Revoked:
		a.Decision = ticket.Revoked
		return a
	case g.Issuer == "":
		return a // the grant of the launcher that began the job
	}
	r, issuer, err := ticket.Open([]byte(g.Record))
	if err != nil || issuer != string(g.Issuer) || r.Key != string(g.Key) || r.Job != ad.job || r.Root != rootOf(v) || r.Uses != g.Uses {
		return ticket.Answer{Decision: ticket.Unknown}
	}
	a.Decision, a.Expiry = r.Check(g.Used, time.Now()), r.Expiry
	return a
}

// rootOf returns the key of the launcher that began the job, "" if the view has none.
func rootOf(v elastic.View) string {
	if len(v.Grants) > 0 && v.Grants[0].Issuer == "" {
		return string(v.Grants[0].Key)
	}
	return ""
}

// bury tells the group that peers are certainly dead. An error means that this process is no member,
// and so cannot pass it on. If it is about to become one, it knows of the deaths by then.
func (ad *admission) bury(ids []elastic.ID) (string, error) {
	g := ad.currentGroup()
	if g != nil {
		for _, id := range ids {
			g.Admin().Dead(id)
		}
	}
	if g == nil || g.View().Rank(g.Self().ID) < 0 {
		return "", errors.New("this peer is no member of the job")
	}
	return fmt.Sprintf("%s dead", printable.Plural(len(ids), "peer is", "peers are")), nil
}

// onObituaries implements p2p.Config.OnObituaries. The obituary of a peer that is not in the view counts as
// told: the peer has left the view, or this member will bury it with the view that it is in.
func (ad *admission) onObituaries(all []p2p.Obituary) bool {
	g := ad.currentGroup()
	if g == nil {
		return false
	}
	ad.remember(all)
	dead, valid := ad.mourn(g.View()) // a later view comes to onView
	_, err := ad.bury(dead)
	return valid && err == nil
}

// remember records obituaries until mourn gets a view with their members. Anybody may bring obituaries, so
// at most maxEarly are kept.
func (ad *admission) remember(all []p2p.Obituary) {
	ad.mu.Lock()
	defer ad.mu.Unlock()
	for _, o := range all {
		if !slices.Contains(ad.early, o) {
			ad.early = append(ad.early, o)
		}
	}
	ad.early = slices.Delete(ad.early, 0, max(0, len(ad.early)-maxEarly))
}

// mourn forgets the obituaries of members of v, and returns the members whose launchers have signed them.
// valid is false if a signature is wrong.
func (ad *admission) mourn(v elastic.View) (dead []elastic.ID, valid bool) {
	ad.mu.Lock()
	defer ad.mu.Unlock()
	valid = true
	ad.early = slices.DeleteFunc(ad.early, func(o p2p.Obituary) bool {
		rank := v.Rank(o.ID)
		if rank < 0 {
			return false
		}
		if wire.IsDeath(v.Members[rank], o) {
			dead = append(dead, o.ID)
		} else {
			valid = false
		}
		return true
	})
	return dead, valid
}
