package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/ticket"
	"github.com/elrun/elrun/internal/transport/p2p"
)

// peer is this process as a member of its job: its identity on the network, which may
// change, and what it knows of the others.
type peer struct {
	a     *agent
	env   environment
	order startOrder       // the launcher's answer to hello
	first []elastic.Member // lives, as it has just let this peer in; nil once it was asked

	mu     sync.Mutex
	host   *p2p.Host // of the present identity
	id     *identity
	latest known                         // the view that was entered last, and the job's secret
	public bool                          // the job can be found on the local network
	found  map[elastic.ID]elastic.Member // there, who may be anybody
}

// joinPeriod is how long a peer looks for a member that lets it in.
const joinPeriod = 30 * time.Second

// open makes a fresh identity, which listens.
func (p *peer) open(ctx context.Context) error {
	addrs, err := listenAddrs(p.env.listen)
	if err != nil {
		return err
	}
	host, err := p2p.Listen(ctx, p2p.Config{Job: p.env.job, ListenAddrs: addrs, Path: p.env.transport,
		Encrypt: p.env.encrypt, Relay: p.env.relay})
	if err != nil {
		return err
	}
	name, _ := os.Hostname() // only for people; an unknown name stays empty
	self := elastic.Member{ID: host.ID(), Index: p.env.index, Host: name, Addrs: host.Addrs(), Launcher: p.order.Launcher, Process: processName()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host, p.id = host, newIdentity(host.Endpoint(self), host, p.entered)
	if p.public {
		p.id.discover(p.find)
	}
	return nil
}

// publish lets the job be found on the local network, from now on, by those who know its
// name, and looks for others of it there.
func (p *peer) publish() {
	p.mu.Lock()
	p.public = true
	id := p.id
	p.mu.Unlock()
	id.discover(p.find)
}

// maxFound bounds what is kept of those who were found on the local network.
const maxFound = 64

// find notes somebody who was found on the local network.
func (p *peer) find(m elastic.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		p.found = make(map[elastic.ID]elastic.Member)
	}
	if _, known := p.found[m.ID]; known || len(p.found) < maxFound {
		p.found[m.ID] = m
	}
}

// finds returns who was found on the local network.
func (p *peer) finds() []elastic.Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.found))
}

// admit gets the present identity as far as to be listened to by members, and lets in
// those of the first view.
func (p *peer) admit(ctx context.Context) error {
	secret := p.order.Secret
	var err error
	switch {
	case len(p.order.Peers) > 0:
		err = p.id.belong(p.order.Peers)
	case len(secret) > 0:
		p.id.equip(secret)
	default:
		secret, err = p.useTicket(ctx)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.latest = known{Members: p.order.Peers, Secret: secret}
	p.mu.Unlock()
	return p.host.SetSecret(secret)
}

// useTicket shows the ticket to members and returns the job's secret.
func (p *peer) useTicket(ctx context.Context) ([]byte, error) {
	t, err := ticket.Parse(p.order.Ticket)
	if err != nil {
		return nil, err
	}
	for _, c := range t.Contacts {
		p.order.Contacts = append(p.order.Contacts, elastic.Member{ID: elastic.ID(c.ID), Addrs: c.Addrs})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, joinPeriod, fmt.Errorf("within %v", joinPeriod))
	defer cancel()
	if !onlyLoopback(p.host.Addrs()) {
		p.publish()
	}
	by, secret, err := p.id.introduceBy(ctx, t.Proof(), p.order.Contacts, p.finds)
	p.first = []elastic.Member{by}
	return secret, err
}

// reopen makes a new identity for a peer that was put out of the group.
func (p *peer) reopen(ctx context.Context) (elastic.Endpoint, error) {
	if err := p.open(ctx); err != nil {
		return elastic.Endpoint{}, err
	}
	secret := p.known().Secret
	p.id.equip(secret)
	if err := p.host.SetSecret(secret); err != nil {
		return elastic.Endpoint{}, errors.Join(err, p.id.Close())
	}
	p.a.renew(p.id.ep.Self)
	return p.id.endpoint(), nil
}

// begun notes the first view, of which the launcher has told: a job that waits for more peers
// than that enters none, and those who are to make up the number must find it.
func (p *peer) begun() {
	if len(p.order.Peers) > 0 {
		p.entered(elastic.View{Epoch: 1, Members: p.order.Peers})
	}
}

// entered notes the view that is about to be connected. One peer of each launcher tells
// it, so that peers which are started later find the group.
func (p *peer) entered(v elastic.View) {
	p.mu.Lock()
	p.latest.Epoch, p.latest.Members = v.Epoch, v.Members
	k := p.latest
	self := p.id.ep.Self.ID
	p.mu.Unlock()
	first := slices.IndexFunc(v.Members, func(m elastic.Member) bool { return m.Launcher == p.order.Launcher })
	if first >= 0 && v.Members[first].ID == self {
		p.a.post(message{Known: &k}, history)
	}
}

// known returns what this peer knows of its group.
func (p *peer) known() known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// contacts returns members that may be asked to let this peer in: those that the
// launcher or the ticket has named, those of the last view that was entered, and those
// found on the local network. The first answer holds only the one that is known to live,
// if there is one, for it takes time to find that others do not.
func (p *peer) contacts() []elastic.Member {
	if first := p.first; first != nil {
		p.first = nil
		return first
	}
	all := slices.Concat(p.known().Members, p.order.Contacts, p.finds())
	return slices.DeleteFunc(all, func(m elastic.Member) bool { return p.a.isDead(m.ID) })
}

// issue makes a ticket that holds for so long.
func (p *peer) issue(valid time.Duration, local bool) (Ticket, error) {
	p.mu.Lock()
	k, host, self := p.latest, p.host, p.id.ep.Self
	p.mu.Unlock()
	if k.Epoch == 0 {
		return Ticket{}, errors.New("this peer is no member yet")
	}
	t, err := ticket.New(k.Secret, p.env.job, time.Now().Add(valid), ticketContacts(k.Members, self))
	if err != nil {
		return Ticket{}, err
	}
	out := Ticket{Text: t.String(), Job: p.env.job, Expires: t.Expiry}
	switch {
	case local:
	case !onlyLoopback(host.Addrs()):
		p.publish()
	default:
		out.Note = "its peers listen on the loopback interface only, so that the ticket works on this host alone"
	}
	return out, nil
}

// shownContacts is how many members a ticket names: enough to survive the death of
// some, and few enough for a line that can be copied.
const shownContacts = 5

// ticketContacts chooses the members that a ticket names: this one, and then such of
// other hosts before more of the same host.
func ticketContacts(members []elastic.Member, self elastic.Member) []ticket.Contact {
	chosen := []elastic.Member{self}
	hosts := map[string]bool{self.Host: true}
	for _, sameHost := range []bool{false, true} {
		for _, m := range members {
			there := slices.ContainsFunc(chosen, func(o elastic.Member) bool { return o.ID == m.ID })
			if there || !sameHost && hosts[m.Host] || len(chosen) == shownContacts {
				continue
			}
			hosts[m.Host] = true
			chosen = append(chosen, m)
		}
	}
	var out []ticket.Contact
	for _, m := range chosen {
		out = append(out, ticket.Contact{ID: string(m.ID), Addrs: m.Addrs})
	}
	return out
}

// checkTicket reads a ticket before anything is started, and returns its job.
func checkTicket(text string, now time.Time) (job string, err error) {
	t, err := ticket.Parse(text)
	if err != nil {
		return "", err
	}
	if now.After(t.Expiry) {
		return "", fmt.Errorf("%w: it was good until %s, and this clock says %s", ticket.ErrExpired,
			t.Expiry.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if err := validJob(t.Job); err != nil {
		return "", fmt.Errorf("%w: %w", ticket.ErrFormat, err)
	}
	return t.Job, nil
}
