package inpeer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// peer is the state of this process as a member of its job: its identity on the network, which may
// change, and its knowledge of the other members.
type peer struct {
	a       *Link
	env     wire.Environment
	sidecar *Sidecar        // nil if this process is the program
	order   wire.StartOrder // the launcher's answer to hello
	// knownAlive is the member that has just admitted this peer, and so is alive; nil once contacts has
	// returned it.
	knownAlive []elastic.Member

	mu        sync.Mutex
	p2pHost   *p2p.Host      // host of the present identity
	group     *elastic.Group // nil until the group is joined
	id        *identity
	latest    wire.Known          // the last view that was entered
	public    bool                // the job is announced on the local network
	openAsked map[elastic.ID]bool // members that were asked to listen on the network

	admission *admission
	inquiries inquiries // for figures of other launchers
	usage     *usageMeter
	passes    passes         // for new identities
	local     *ticket.Ticket // for joining on this host; guarded by issuing

	issuing sync.Mutex // held while a ticket is made

	opening sync.Mutex // held while this peer is opened to the network
	// wide is set once the peer listens on the network, and not only on loopback. mu guards wide.
	wide  bool
	found lanPeers // peers found on the local network, with a lock of its own
}

// open makes a fresh identity, which begins to listen.
func (p *peer) open(ctx context.Context) error {
	listen := p.env.Listen
	if p.isWide() {
		listen = spec.OpenListen(listen)
	}
	addrs, err := listenAddrs(listen)
	if err != nil {
		return err
	}
	host, err := p2p.Listen(ctx, p2p.Config{Job: p.env.Job, ListenAddrs: addrs, Path: p.env.Transport,
		Encrypt: p.env.Encrypt, Relay: p.env.Relay, OnOpen: p.widen, OnVersion: p.a.refusedVersion, Admission: p.admission.answer, OnObituaries: p.admission.onObituaries, HostKey: p.order.HostKey, Memory: p.sidecar.memory()})
	if err != nil {
		return err
	}
	host.EndsReportedBy(p.order.Watcher())
	name, _ := os.Hostname() // appears in messages only; an unknown name stays empty
	self := elastic.Member{ID: host.ID(), Index: p.env.Index, Host: name, Addrs: host.Addrs(), Launcher: p.order.Launcher, Process: proc.ProcessName(),
		Machine: machineID(p.env.Job), Site: p.env.Site}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p2pHost, p.id = host, newIdentity(host.Endpoint(self), host, p.onConnect)
	p.id.onFigures = p.serveFigures
	if p.public {
		p.id.discover(p.found.add, p.undiscovered)
	}
	p.mapPorts(p.id)
	return nil
}

// mapPorts asks the router to forward ports to an identity, if the user wants it. Before the
// launcher's order it does nothing.
func (p *peer) mapPorts(id *identity) {
	if p.order.PortMap {
		id.mapPorts(p.onPortsMapped)
	}
}

// onPortsMapped handles the result of the port mapping.
func (p *peer) onPortsMapped(err error) {
	if err != nil {
		p.a.Post(wire.Message{Note: wire.ClipNote(fmt.Sprintf("--port-map: %s: switch NAT-PMP or UPnP on at the router, or let it forward the ports of --listen", inner(err)))}, wire.History)
		return
	}
	p.report()
}

// publish announces the job on the local network from now on, if the user allows it, and searches
// the local network for other peers of the job.
func (p *peer) publish() {
	if !p.order.LAN {
		return
	}
	p.mu.Lock()
	p.public = true
	id := p.id
	p.mu.Unlock()
	id.discover(p.found.add, p.undiscovered)
}

// undiscovered reports why the job is not announced on the local network.
func (p *peer) undiscovered(err error) {
	what := "no multicast here"
	if errors.Is(err, p2p.ErrNoNetwork) {
		what = "these peers have no network but loopback"
	}
	p.a.Post(wire.Message{Note: wire.ClipNote(fmt.Sprintf("--lan: %s, so others are not found: use a ticket of a live member, or --dht (%s)", what, inner(err)))}, wire.History)
}

// admit gets the right to join for the present identity. A peer of the first view needs no such
// right: it admits the other peers of the first view.
func (p *peer) admit(ctx context.Context) error {
	var err error
	switch {
	case len(p.order.Peers) > 0:
		err = p.id.joinFirstView(p.order.Peers)
	case len(p.order.Pass) > 0:
		p.id.setCredential(credentialOf(&p.order, p.env.Job, p.order.Pass))
	default:
		err = p.useTicket(ctx)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.latest = wire.Known{Members: p.order.Peers}
	p.mu.Unlock()
	return nil
}

// useTicket joins by the ticket. If the ticket is expired or used up and peers of this launcher
// are members, it joins by a ticket from one of these peers.
func (p *peer) useTicket(ctx context.Context) error {
	t, err := ticket.Parse(p.order.Ticket)
	if err != nil {
		return err
	}
	p.publish()
	err = p.showTicket(ctx, t)
	// The ticket is not valid any more, but members that this launcher started can make another
	// ticket.
	if p.order.Own && (errors.Is(err, ticket.ErrExpired) || errors.Is(err, ticket.ErrUsedUp)) {
		err = errors.Join(p.localTicketFromPeer(ctx, &t), err)
		if t.String() != p.order.Ticket {
			p.order.Ticket = t.String()
			err = p.showTicket(ctx, t)
		}
	}
	// People at the launcher get the cause, and one line for each address that was tried.
	if err != nil {
		p.a.Post(wire.Message{Note: wire.ClipNote(inner(err))}, wire.History)
	}
	var lines *searchError
	if errors.As(err, &lines) && len(lines.lines) > 1 {
		for _, l := range lines.lines {
			p.a.Post(wire.Message{Note: wire.ClipNote("tried " + l)}, wire.History)
		}
	}
	return err
}

// localTicketFromPeer gets a ticket from a peer of the job on this host.
func (p *peer) localTicketFromPeer(ctx context.Context, t *ticket.Ticket) error {
	j := ctl.Of(p.env.Job)
	k, err := j.AskTicket(ctx, wire.Request{Request: "ticket", ValidMS: wire.LocalTicket.Milliseconds(), Local: true})
	if err != nil {
		return err
	}
	fresh, err := ticket.Parse(k.Text)
	if err == nil {
		*t = fresh
	}
	return err
}

// showTicket shows a ticket to members until one admits this peer.
func (p *peer) showTicket(ctx context.Context, t ticket.Ticket) error {
	in, err := p.id.findAdmission(ctx, t.Credential(string(p.id.ep.Self.ID)), t.Addrs, p.found.members, cmp.Or(p.order.JoinTimeout, spec.DefaultJoin))
	if err != nil && len(p.found.members()) == 0 && (p.order.LAN || p.order.DHT) {
		err = fmt.Errorf("%w; nobody was found by %s", err, searchFlags(&p.order))
	}
	if err != nil {
		return err
	}
	// The contacts in the launcher's order may be newcomers, too, so they come last.
	p.order.Contacts = slices.Concat([]elastic.Member{in.by}, in.others, p.order.Contacts)
	p.knownAlive = []elastic.Member{in.by}
	p.found.prove(in.by.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id.dialMore(in.unheard, p.found.add)
	return nil
}

// renewIdentity makes a new identity for a peer that was put out of the group, once its program is not
// stopped. The peer joins again with a signature by the key of its previous identity, and with its ticket or a new pass.
func (p *peer) renewIdentity(ctx context.Context) (elastic.Endpoint, error) {
	// The old key must be read before open replaces the identity.
	old := ticket.Signer{ID: string(p.id.ep.Self.ID), Sign: p.id.ep.Keys.Sign}
	if p.sidecar != nil {
		if err := p.sidecar.awaitRunning(ctx); err != nil {
			return elastic.Endpoint{}, fmt.Errorf("the program is stopped: %w", err)
		}
	}
	if err := p.open(ctx); err != nil {
		return elastic.Endpoint{}, err
	}
	self := p.id.ep.Self.ID
	p.p2pHost.Learn(p.known().Members)
	c := old.Credential(p.env.Job, ticket.Identity{}, string(self))
	p.a.renew(p.id.ep.Self)
	if t, err := ticket.Parse(p.order.Ticket); err == nil {
		c = c.With(t.Signer().Claim(string(self)), t.Signer().ID)
	} else if p.order.Root != "" { // this launcher began the job, and signs the new ID
		if signature := p.passes.wait(ctx, self, p.a.LauncherGone.Done()); signature != nil {
			c = c.With(ticket.ClaimOf(p.order.Root, signature), p.order.Root)
		}
	}
	p.id.setCredential(c)
	return p.id.endpoint(), nil
}

// onView records a view that this peer enters. One peer of each launcher reports the view to the
// launcher, so that later peers find the group, and before this peer can die as a member of it. It
// implements elastic.Config.OnView.
func (p *peer) onView(v elastic.View) {
	p.admission.onView(v)
	p.mu.Lock()
	p.latest.Epoch, p.latest.Members, p.latest.Tickets = v.Epoch, p.p2pHost.Complete(v.Members), wire.TicketsOf(v)
	p.mu.Unlock()
	p.report()
}

// onConnect is called with a view that is about to be connected.
func (p *peer) onConnect(v elastic.View) {
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	id.disconnect(v.Barred)
	if p.isWide() && v.Members[0].ID == p.id.ep.Self.ID {
		p.openLater() // asks peers that joined while the job was being opened
	}
}

// report sends this peer's knowledge of the group to the launcher, if it is the launcher's first
// member in rank order.
func (p *peer) report() {
	p.mu.Lock()
	k, self, host := p.latest, p.id.ep.Self.ID, p.p2pHost
	p.mu.Unlock()
	first := slices.IndexFunc(k.Members, func(m elastic.Member) bool { return m.Launcher == p.order.Launcher })
	if first < 0 || k.Members[first].ID != self {
		return
	}
	if k.Open {
		k.Members = host.Complete(k.Members) // members may have begun to listen on the network since
	}
	p.a.Post(wire.Message{Known: &k}, wire.History)
	if k.Open {
		p.publish() // the peer that made the ticket may be gone
	}
}

// known returns this peer's knowledge of its group.
func (p *peer) known() wire.Known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// contacts returns members that this peer can ask to join: the members in the launcher's order, in
// the ticket and in the last view, and peers found on the local network. The first call returns
// only the member that has just admitted this peer, if there is one, because it takes time to
// detect that other contacts are dead.
func (p *peer) contacts() []elastic.Member {
	if first := p.knownAlive; first != nil {
		p.knownAlive = nil
		return first
	}
	all := slices.Concat(p.known().Members, p.order.Contacts, p.found.members())
	return slices.DeleteFunc(all, func(m elastic.Member) bool { return p.a.isDead(m.ID) })
}

// handleOrder carries out a launcher's order after its answer to hello. It does not block. A peer that is
// told Again says hello another time, unless it has become a member meanwhile.
func (p *peer) handleOrder(g *elastic.Group, m wire.Message) {
	switch {
	case m.Pass != nil:
		p.passes.put(*m.Pass)
	case m.Inquiry != nil:
		p.mu.Lock()
		id := p.id
		p.mu.Unlock()
		id.run(func(ctx context.Context) { p.inquiries.ask(ctx, *m.Inquiry, id.Request) })
	case m.Figures != nil:
		p.inquiries.answered(*m.Figures)
	case m.Meter:
		p.usage.ask()
	case m.Finished:
		g.Admin().Finished()
	case m.Abort != "":
		g.Admin().Abort(m.Abort)
	case m.Again:
		go func() { // it waits for the group, and the caller must not
			if g.Admin().Again() {
				p.mu.Lock()
				self := p.id.ep.Self
				p.mu.Unlock()
				p.a.greet(self)
			}
		}()
	case m.Start != nil && len(m.Start.Peers) > 0:
		p.mu.Lock()
		id := p.id
		p.latest = wire.Known{Members: m.Start.Peers}
		p.mu.Unlock()
		_ = id.joinFirstView(m.Start.Peers) // an invalid address concerns one member only
		g.Admin().Begin(m.Start.Peers)
	case m.Start != nil: // members live after all
		p.mu.Lock()
		if p.latest.Epoch == 0 {
			p.latest = wire.Known{Members: m.Start.Contacts}
		}
		p.mu.Unlock()
		g.Admin().Resume()
	}
}

// listenAddrs returns the multiaddrs at which a peer first listens. The words auto, local and all
// mean addresses of this host.
func listenAddrs(listen string) ([]string, error) {
	switch listen {
	case spec.ListenAuto, spec.ListenLocal:
		return p2p.LoopbackAddrs(), nil
	case spec.ListenAll:
		return p2p.NetworkAddrs(), nil
	}
	return spec.ParseListen(listen)
}

// status returns the Status for the control socket: the figures of this peer and its knowledge of
// the other members. Each other peer of this host reports its own figures on its own socket.
func (p *peer) status() spec.Status {
	p.mu.Lock()
	members, g := p.latest.Members, p.group
	p.mu.Unlock()
	// A peer that has not joined yet has no group, and so has heard from nobody.
	var heard map[elastic.ID]time.Duration
	if g != nil {
		heard = g.Admin().Heard()
	}
	return describeOthers(p.a.status(), members, heard)
}

// credentialOf returns the credential of a peer that has a pass of the launcher that began the job.
func credentialOf(o *wire.StartOrder, job string, signature []byte) ticket.Credential {
	c := ticket.Credential{Request: ticket.Request{Name: ticket.NameOf(job), Identity: ticket.IdentityOf(job, o.Root)}}
	return c.With(ticket.ClaimOf(o.Root, signature), o.Root)
}

// searchFlags returns the flags by which peers look for members.
func searchFlags(o *wire.StartOrder) string {
	switch {
	case !o.DHT:
		return "--lan"
	case !o.LAN:
		return "--dht"
	}
	return "--lan and --dht"
}
