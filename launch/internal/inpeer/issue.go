package inpeer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/ticket"
)

// errNoMember reports that this peer is not a member yet and so cannot act for the job.
var errNoMember = errors.New("this peer has not joined the job yet: try again later")

// issue makes a ticket. A ticket for other hosts opens the job first. A ticket for this host alone
// is made once and then reused.
func (p *peer) issue(ctx context.Context, r wire.Request) (spec.Ticket, error) {
	g := p.admission.currentGroup()
	if g == nil || g.View().Epoch == 0 || g.View().Rank(g.Self().ID) < 0 {
		return spec.Ticket{}, errNoMember
	}
	var note string
	// A ticket for other hosts needs a job that other hosts can reach and find.
	if !r.Local {
		note = p.openJob(ctx)
		p.publish()
	}
	// A ticket for this host is reused while it still admits peers.
	p.issuing.Lock()
	defer p.issuing.Unlock()
	if r.Local && p.local != nil {
		if grant, ok := g.View().Grant(elastic.ID(p.local.Signer().ID)); ok && grant.Left() {
			return p.shown(*p.local, ""), nil
		}
	}
	// The ticket's key is made from a random seed. The ticket admits peers once the members have
	// agreed to it. The seed is secret: it goes only into the ticket. The other members store the
	// public key.
	seed := [ticket.SeedSize]byte{}
	if _, err := rand.Read(seed[:]); err != nil {
		return spec.Ticket{}, fmt.Errorf("make a ticket: %w", err)
	}
	valid := time.Duration(r.ValidMS) * time.Millisecond
	t, err := ticket.New(p.env.Job, ticket.IdentityOf(p.env.Job, rootOf(g.View())), seed, time.Now().Add(valid), p.ticketAddrs())
	if err == nil {
		err = p.grant(ctx, g, t, r.Uses)
	}
	if err != nil {
		return spec.Ticket{}, err
	}
	// Store a local ticket for reuse, so that many elrun join on this host do not use up the job's
	// tickets.
	if r.Local {
		p.local = &t
	}
	return p.shown(t, note), nil
}

// grant makes the members agree to admit peers by a ticket. The seal of this host on the record
// lets every member check later that a member issued the ticket, with this expiry and number of
// uses.
func (p *peer) grant(ctx context.Context, g *elastic.Group, t ticket.Ticket, uses uint64) error {
	p.mu.Lock()
	host := p.p2pHost
	p.mu.Unlock()
	// The time of issue is by this member's clock. Each member compares the expiry with its own
	// clock.
	now := time.Now().Unix()
	r := ticket.Record{Root: rootOf(g.View()), Key: t.Signer().ID, Job: t.Job, Made: now, Expiry: t.Expiry.Unix(), Uses: uses}
	sealed, err := host.Seal(r)
	if err != nil {
		return err
	}
	if err := g.Admin().Issue(ctx, elastic.Grant{Key: elastic.ID(r.Key), Issuer: host.ID(), Made: now, Expiry: r.Expiry, Uses: uses, Record: string(sealed)}); err != nil {
		return err
	}
	p.mu.Lock()
	// The launcher announces the job under the keys of its tickets (Discovery), so report the new
	// ticket to the launcher.
	p.latest.Tickets = wire.TicketsOf(g.View())
	p.mu.Unlock()
	p.report()
	return nil
}

// shown returns a ticket in the form for people. Open is set if the ticket has addresses that other
// hosts can reach; note is a warning to print with the ticket, or "".
func (p *peer) shown(t ticket.Ticket, note string) spec.Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return spec.Ticket{Text: t.String(), ID: elastic.ID(t.Signer().ID).Short(), Job: t.Job, Expires: t.Expiry, Note: note,
		Open: !spec.OnlyLoopback(p.p2pHost.Addrs())}
}

// ticketAddrs returns the addresses for a ticket of this job: the addresses of this peer and of
// some members on other hosts, so that the ticket outlives this peer.
func (p *peer) ticketAddrs() []string {
	p.mu.Lock()
	k, self, host := p.latest, p.id.ep.Self, p.p2pHost
	p.mu.Unlock()
	self.Addrs = host.Addrs()
	return ticketAddrs(ticketContacts(host.Complete(k.Members), self))
}

// refresh returns the ticket with the addresses of the present members, for people who keep a
// ticket in a file while members come and go. It changes neither the key nor the expiry.
func (p *peer) refresh(text string) (spec.Ticket, error) {
	t, err := ticket.Parse(text)
	if err != nil {
		return spec.Ticket{}, err
	}
	g := p.admission.currentGroup()
	if g == nil || g.View().Epoch == 0 {
		return spec.Ticket{}, errNoMember
	}
	grant, ok := g.View().Grant(elastic.ID(t.Signer().ID))
	// New addresses for a ticket that admits nobody would only mislead its owner.
	if !ok || !grant.Left() {
		return spec.Ticket{}, fmt.Errorf("the ticket admits no more peers: it has expired, or was used up or revoked; elrun ticket makes another one")
	}
	t.Addrs = p.ticketAddrs()
	return p.shown(t, ""), nil
}

// revoke revokes the ticket whose text or ID is name. If name is "", it revokes all tickets that
// members have issued. It returns a description of the effect.
func (ad *admission) revoke(ctx context.Context, name string) (string, error) {
	g := ad.currentGroup()
	if g == nil {
		return "", errNoMember
	}
	id := elastic.ID(name)
	if t, err := ticket.Parse(name); err == nil {
		id = elastic.ID(t.Signer().ID)
	}
	// named holds the short IDs of the tickets that match name, and revoked the short IDs of the
	// tickets that this call revokes.
	var named, revoked []string
	for _, grant := range g.View().Grants {
		if grant.Issuer == "" || name != "" && grant.Key != id && grant.Key.Short() != string(id) {
			continue
		}
		named = append(named, grant.Key.Short())
		if grant.Revoked {
			continue
		}
		if err := g.Admin().Revoke(ctx, grant.Key); err != nil {
			return "", err
		}
		revoked = append(revoked, grant.Key.Short())
	}
	switch {
	case len(revoked) > 0:
		return "revoked " + strings.Join(revoked, ", "), nil
	case len(named) > 0:
		return "", fmt.Errorf("already revoked: %s", strings.Join(named, ", "))
	case name != "":
		return "", fmt.Errorf("the job has no ticket with this text or ID, or the ticket has expired")
	}
	return "", errors.New("the job has no tickets")
}

// kick puts a peer out for good. The peer is named by its ID or, if the index is unique, by its
// index. It returns a description of the effect.
func (ad *admission) kick(ctx context.Context, name string) (string, error) {
	g := ad.currentGroup()
	if g == nil {
		return "", errNoMember
	}
	m, err := choosePeer(g.View(), name)
	if err != nil {
		return "", err
	}
	// The kick is complete when a view without the peer is agreed, which takes as long as a
	// membership change.
	begun := time.Now()
	if err := g.Admin().Kick(ctx, m.ID); err != nil {
		return "", err
	}
	return fmt.Sprintf("kicked %s (index %d on %s): out %v later, and not let in again", m.ID.Short(), m.Index, m.Host,
		time.Since(begun).Round(time.Millisecond)), nil
}

// choosePeer returns the member of a view with this name: its ID, its short ID or its index.
// Members of several launchers may have the same index, so a name that fits several members is an
// error: kicking the wrong peer cannot be undone.
func choosePeer(v elastic.View, name string) (elastic.Member, error) {
	var fit []elastic.Member
	for _, m := range v.Members {
		if string(m.ID) == name || m.ID.Short() == name || strconv.Itoa(m.Index) == name {
			fit = append(fit, m)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return elastic.Member{}, fmt.Errorf("several peers have index %s: name one by its ID, as elrun status shows it", name)
	case slices.ContainsFunc(v.Barred, func(id elastic.ID) bool { return string(id) == name || id.Short() == name }):
		return elastic.Member{}, fmt.Errorf("peer %s was kicked already", name)
	}
	return elastic.Member{}, fmt.Errorf("the job has no peer %s: elrun status shows their IDs", name)
}

const (
	// shownContacts bounds the members in a ticket: enough to survive the death of some, and few
	// enough that people can copy the line.
	shownContacts = 5
)

// ticketContacts chooses the members for a ticket: first self, then one member of each other host,
// then further members of the same hosts.
func ticketContacts(members []elastic.Member, self elastic.Member) []elastic.Member {
	chosen := []elastic.Member{self}
	for _, sameHost := range []bool{false, true} {
		for _, m := range members {
			there := slices.ContainsFunc(chosen, func(o elastic.Member) bool { return o.ID == m.ID })
			if there || !sameHost && slices.ContainsFunc(chosen, m.Beside) || len(chosen) == shownContacts {
				continue
			}
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// ticketAddrs returns the addresses of these members for a ticket: for each member the addresses of
// its best kind. Only relayed addresses contain IDs, because the relay needs them. At other
// addresses the member sends its ID when a peer connects.
func ticketAddrs(members []elastic.Member) []string {
	var out []string
	for i, m := range members {
		most := wire.ShownAddrs
		if i > 0 {
			most = wire.MoreAddrs
		}
		out = append(out, wire.BestAddrs(m, most)...)
	}
	return out
}
