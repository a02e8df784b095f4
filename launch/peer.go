package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
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
	latest known               // the view that was entered last, and the job's secret
	public bool                // the job can be found on the local network
	told   map[elastic.ID]bool // members that were asked to listen on the network

	opening sync.Mutex // held by who opens this peer
	wide    bool       // guarded by mu: the peer listens on the network in an open job
	found   finds      // on the local network
}

// joinPeriod is how long a peer looks for a member that lets it in.
const joinPeriod = 30 * time.Second

// open makes a fresh identity, which listens.
func (p *peer) open(ctx context.Context) error {
	listen := p.env.listen
	if p.isWide() {
		listen = openListen(listen)
	}
	addrs, err := listenAddrs(listen)
	if err != nil {
		return err
	}
	host, err := p2p.Listen(ctx, p2p.Config{Job: p.env.job, ListenAddrs: addrs, Path: p.env.transport,
		Encrypt: p.env.encrypt, Relay: p.env.relay, OnOpen: p.widen})
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
// name, and looks for others of it there, if the user wants that.
func (p *peer) publish() {
	if !p.order.LAN {
		return
	}
	p.mu.Lock()
	p.public = true
	id := p.id
	p.mu.Unlock()
	id.discover(p.find)
}

// find notes somebody who was found on the local network.
func (p *peer) find(m elastic.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found.add(m)
}

// finds returns who was found on the local network.
func (p *peer) finds() []elastic.Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found.members()
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
	p.publish()
	by, secret, err := p.id.introduceBy(ctx, t.Proof(), p.order.Contacts, p.finds)
	p.first = []elastic.Member{by}
	p.mu.Lock()
	p.found.prove(by.ID)
	p.mu.Unlock()
	return secret, err
}

// reopen makes a new identity for a peer that was put out of the group.
func (p *peer) reopen(ctx context.Context) (elastic.Endpoint, error) {
	if err := p.open(ctx); err != nil {
		return elastic.Endpoint{}, err
	}
	k := p.known()
	secret := k.Secret
	p.host.Learn(k.Members)
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
	p.latest.Epoch, p.latest.Members = v.Epoch, p.host.Complete(v.Members)
	p.mu.Unlock()
	p.report()
	if p.isWide() && v.Members[0].ID == p.id.ep.Self.ID {
		p.openLater() // those who came while the job was being opened
	}
}

// report tells the launcher what this peer knows of its group, if it is the one that does.
func (p *peer) report() {
	p.mu.Lock()
	k, self := p.latest, p.id.ep.Self.ID
	p.mu.Unlock()
	first := slices.IndexFunc(k.Members, func(m elastic.Member) bool { return m.Launcher == p.order.Launcher })
	if first >= 0 && k.Members[first].ID == self {
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

// issue makes a ticket that holds for so long. Unless only this host uses it the job is
// opened first.
func (p *peer) issue(ctx context.Context, valid time.Duration, local bool) (Ticket, error) {
	if p.known().Epoch == 0 {
		return Ticket{}, errors.New("this peer is no member yet")
	}
	var note string
	if !local {
		note = p.openJob(ctx)
		p.publish()
	}
	p.mu.Lock()
	k, self := p.latest, p.id.ep.Self
	p.mu.Unlock()
	self.Addrs = p.host.Addrs()
	t, err := ticket.New(k.Secret, p.env.job, time.Now().Add(valid), ticketContacts(p.host.Complete(k.Members), self))
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{Text: t.String(), Job: p.env.job, Expires: t.Expiry, Note: note, Open: !onlyLoopback(self.Addrs)}, nil
}
