package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/ticket"
)

// localTicket is the validity of a ticket that joins a job on the same host. The launcher that
// holds the ticket may need it to restart a peer at any time.
const localTicket = wire.MaxValid

// find sets the name of the job to join, and gets a ticket if none is given.
func find(ctx context.Context, o *spec.Options) error {
	if o.Ticket == "" {
		// Without a ticket the job is on this host: one of its peers makes a local ticket.
		j, err := ctl.Find(ctx, o.Job)
		if err != nil {
			return err
		}
		t, err := j.AskTicket(ctx, wire.Request{Request: "ticket", ValidMS: localTicket.Milliseconds(), Local: true})
		if err != nil {
			return err
		}
		o.Job, o.Ticket = t.Job, t.Text
		if t.Open {
			o.Network.Listen = openListen(o.Network.Listen)
		}
		return nil
	}
	// With a ticket the job may be anywhere, so the peers listen on the network.
	job, err := checkTicket(o.Ticket, time.Now())
	if err != nil {
		return fmt.Errorf("launch: bad ticket: %w", err)
	}
	if o.Job != "" && o.Job != job {
		return fmt.Errorf("launch: %w: the ticket is for job %s, not for %s", spec.ErrOptions, job, o.Job)
	}
	o.Job, o.Network.Listen = job, openListen(o.Network.Listen)
	return nil
}

// openListen returns the Listen value of peers that join an open job: all interfaces, unless the
// user has chosen other addresses.
func openListen(listen string) string {
	if listen == "" || listen == spec.ListenAuto {
		return spec.ListenAll
	}
	return listen
}

const (
	// shownContacts bounds the members in a ticket: enough to survive the death of some, and few
	// enough that people can copy the line.
	shownContacts = 5
	// shownAddrs bounds the addresses of the first member of a ticket, which is the issuer, and
	// moreAddrs bounds the addresses of every other member.
	shownAddrs, moreAddrs = 4, 2
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
		most := shownAddrs
		if i > 0 {
			most = moreAddrs
		}
		out = append(out, bestAddrs(m, most)...)
	}
	return out
}

// bestAddrs returns the member's addresses of the best kind that it has, but no more than limit
// addresses. Addresses of worse kinds are left out, because people copy the ticket, and a long
// line breaks easily.
func bestAddrs(m elastic.Member, limit int) (out []string) {
	best := addrKinds
	for _, a := range m.Addrs {
		kind := addrKind(a)
		if kind < best {
			best, out = kind, nil
		}
		if kind == relayedAddr && !strings.Contains(a, "/p2p-circuit/p2p/") {
			a += "/p2p/" + string(m.ID)
		}
		if kind == best && len(out) < limit {
			out = append(out, a)
		}
	}
	return out
}

// The kinds of addresses, best first.
const (
	netAddr     = iota // of a network interface
	linkAddr           // link-local: of one network segment only
	relayedAddr        // through a relay
	nearAddr           // loopback: this host only
	addrKinds          // number of kinds
)

// addrKind returns the kind of a multiaddr.
func addrKind(addr string) int {
	switch {
	case strings.Contains(addr, "/p2p-circuit"):
		return relayedAddr
	case spec.OnlyLoopback([]string{addr}):
		return nearAddr
	case strings.HasPrefix(addr, "/ip6/fe80:") || strings.HasPrefix(addr, "/ip6zone/"):
		return linkAddr
	}
	return netAddr
}

// keyOf returns the public key of the ticket by which the peers join, "" without a ticket.
func keyOf(text string) string {
	t, err := ticket.Parse(text)
	if err != nil {
		return ""
	}
	return t.Signer().ID
}

// checkTicket checks a ticket before anything is started, and returns the name of its job. An
// expired ticket is an error.
func checkTicket(text string, now time.Time) (job string, err error) {
	t, err := ticket.Parse(text)
	if err != nil {
		return "", err
	}
	if now.After(t.Expiry) {
		return "", fmt.Errorf(`%w at %s, and the clock here says %s: ask for a new one with "elrun ticket %s"`, ticket.ErrExpired,
			t.Expiry.Format(time.RFC3339), now.UTC().Format(time.RFC3339), t.Job)
	}
	if err := spec.ValidJob(t.Job); err != nil {
		return "", fmt.Errorf("%w: %w", ticket.ErrFormat, err)
	}
	return t.Job, nil
}
