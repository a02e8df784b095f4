package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
)

// A view has the addresses at which each member listened when it joined. A host that later listens
// at further addresses announces them to the other members, and newcomers ask for them:
//
//	asks                                      answers
//	its addresses, open?                ->    records them; opens itself if asked to
//	                                    <-    the addresses of all peers that it knows, and its own
//
// A member that was asked to open itself asks back, and so learns the addresses of the others.
//
// Addresses are hints: a peer that is dialled at one has to prove its ID. A question carries only
// the addresses of its sender. An answer also carries addresses of other hosts; only a peer that
// this host has asked can send an answer.

const (
	// maxBook is the longest message about addresses, in bytes: enough for thousands of members.
	maxBook = 4 << 20
	// maxBookAddrs is the number of addresses of one host that are kept.
	maxBookAddrs = 64
	// maxBookError is the number of bytes of the other side's error that are reported.
	maxBookError = 200
	// bookTime is the limit for an exchange, in which the answering member may have to open itself.
	// announce uses it, too.
	bookTime = 5 * time.Second
)

// book is a question about addresses, or the answer.
type book struct {
	// Open asks the other side to listen on the network, too.
	Open bool `json:"open,omitempty"`
	// Error, in an answer, says why its sender did not open itself.
	Error string `json:"error,omitempty"`
	// Addrs has the multiaddrs of hosts, by ID.
	Addrs map[elastic.ID][]string `json:"addrs"`
}

// addressBook exchanges addresses with members, and keeps their addresses in libp2p's peerstore.
// All methods are safe for concurrent use. A single address is never removed: an old address costs
// only a failed dial, and a host that changes networks may get the address again. Forget removes
// all addresses of a peer that was put out.
type addressBook struct {
	*dialer

	ask    func(context.Context, elastic.ID, question) (io.ReadCloser, error)
	self   elastic.ID
	own    func() []string // addresses of this host
	onOpen func() error    // Config.OnOpen
}

// exchange sends a member the addresses of this host, and records the addresses of other hosts from
// the member's answer. With open it asks the member to listen on the network, and returns an error
// if the member does not. changed reports whether the member itself has new addresses.
func (a *addressBook) exchange(ctx context.Context, to elastic.ID, open bool) (changed bool, answer book, err error) {
	id, err := idOf(string(to))
	if err != nil {
		return false, book{}, fmt.Errorf("p2p: exchange addresses: %w", err)
	}
	before := len(a.known(id))
	err = a.retry(ctx, id, func(ctx context.Context) error {
		answer, err = a.askFor(ctx, to, book{Open: open, Addrs: map[elastic.ID][]string{a.self: a.own()}})
		return err
	})
	if err != nil {
		return false, book{}, fmt.Errorf("p2p: exchange addresses with %s: %w", to.Short(), err)
	}
	for who, addrs := range answer.Addrs {
		a.learn(who, addrs)
	}
	if answer.Error != "" {
		err = fmt.Errorf("p2p: exchange addresses with %s: %s", to.Short(), answer.Error)
	}
	return len(a.known(id)) != before, answer, err
}

// askFor asks once. The answer may take bookTime.
func (a *addressBook) askFor(ctx context.Context, to elastic.ID, q book) (book, error) {
	r, err := a.ask(ctx, to, question{Book: &q})
	if err != nil {
		return book{}, err
	}
	defer r.Close()
	defer time.AfterFunc(bookTime, func() { _ = r.Close() }).Stop()
	return readBook(r)
}

// answer answers the question of a member.
func (a *addressBook) answer(from elastic.ID, q *book, w io.Writer) error {
	a.learn(from, q.Addrs[from]) // the sender's claims about other hosts are ignored
	var answer book
	if q.Open {
		answer.Error = a.openAsked()
		a.tasks.run(func() { a.askBack(from) })
	}
	answer.Addrs = a.all()
	return json.NewEncoder(w).Encode(answer)
}

// askBack asks the member from, which has asked this host to open itself, for addresses: from asks
// all members to open themselves, and so knows their present addresses.
func (a *addressBook) askBack(from elastic.ID) {
	ctx, cancel := context.WithTimeout(a.tasks.life, bookTime)
	defer cancel()
	_, _, _ = a.exchange(ctx, from, false) // an error is harmless: this host knows the addresses in the view
}

// openAsked opens this host at the request of a member. It returns "", or the reason why this host
// was not opened, which the member reports to its user.
func (a *addressBook) openAsked() string {
	if a.onOpen == nil {
		return "the program of this peer does not let members open it to the network"
	}
	if err := a.onOpen(); err != nil {
		return err.Error()
	}
	return ""
}

// readBook reads an answer, which ends with r. At most maxBook+1 bytes are read, one more
// than allowed, so that decodeBook notices a longer message.
func readBook(r io.Reader) (book, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBook+1))
	if err != nil {
		return book{}, fmt.Errorf("read addresses: %w", err)
	}
	return decodeBook(text)
}

// decodeBook decodes a message. It fails beyond maxBook bytes, and cuts the error and the lists of
// addresses to their limits.
func decodeBook(text []byte) (book, error) {
	var b book
	if len(text) > maxBook {
		return book{}, errors.New("decode addresses: too long")
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return book{}, fmt.Errorf("decode addresses: %w", err)
	}
	// The text comes from another host, so its length is bounded.
	b.Error = b.Error[:min(len(b.Error), maxBookError)]
	for id, addrs := range b.Addrs {
		b.Addrs[id] = addrs[:min(len(addrs), maxBookAddrs)]
	}
	return b, nil
}

// all returns the addresses of this host and of all peers that it knows, by ID. Peers without a
// known address are left out.
func (a *addressBook) all() map[elastic.ID][]string {
	all := map[elastic.ID][]string{a.self: a.own()}
	for _, id := range a.gate.all() {
		if known := a.known(id); len(known) > 0 {
			all[elastic.ID(id.String())] = known
		}
	}
	return all
}

// known returns, in sorted order, the recorded addresses at which the host id itself listens. It
// leaves out relayed addresses.
func (b *addressBook) known(id peer.ID) []string {
	var out []string
	for _, a := range b.host.Peerstore().Addrs(id) {
		if isAdvertised(a) {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return out
}

// learn records addresses of a host, up to maxBookAddrs of them. Texts that are no multiaddrs are
// skipped. Addresses of this host and of banned peers are not recorded. A recorded address proves
// nothing: the peer that answers a dial has to prove that it holds the key of the ID.
func (b *addressBook) learn(who elastic.ID, addrs []string) {
	id, err := idOf(string(who))
	if err != nil || who == b.self || b.gate.isBanned(id) {
		return
	}
	// Known addresses do not count twice against the limit.
	known := b.known(id)
	var fresh []multiaddr.Multiaddr
	for _, text := range addrs {
		a, err := multiaddr.NewMultiaddr(text)
		if err != nil || slices.Contains(known, text) {
			continue
		}
		if a, _ = peer.SplitAddr(a); a != nil && len(known)+len(fresh) < maxBookAddrs {
			fresh = append(fresh, a)
		}
	}
	b.host.Peerstore().AddAddrs(id, fresh, peerstore.PermanentAddrTTL)
}

// complete returns a copy of members in which each member has all its addresses that this host
// knows now, up to maxBookAddrs.
func (b *addressBook) complete(members []elastic.Member) []elastic.Member {
	out := slices.Clone(members)
	for i, m := range out {
		if m.ID == b.self {
			out[i].Addrs = b.own()
			continue
		}
		id, err := b.gate.decode(m.ID)
		if err != nil {
			continue
		}
		for _, a := range b.known(id) {
			if !slices.Contains(m.Addrs, a) && len(out[i].Addrs) < maxBookAddrs {
				out[i].Addrs = append(slices.Clip(out[i].Addrs), a)
			}
		}
	}
	return out
}

// announce sends all members the listen addresses of this host. The exchange also makes a new
// connection with each member whose connection used a local address that is gone. It returns after
// bookTime at the latest. A member that was not reached asks for the addresses itself when it tries
// to reach this host.
func (a *addressBook) announce() {
	ctx, cancel := context.WithTimeout(a.tasks.life, bookTime)
	defer cancel()
	slots := make(chan struct{}, maxFirstDials)
	var asking sync.WaitGroup
	for _, id := range a.gate.all() {
		asking.Go(func() {
			slots <- struct{}{} // each exchange may need a new connection
			defer func() { <-slots }()
			_, _, _ = a.exchange(ctx, elastic.ID(id.String()), false) // an error is harmless: the member asks for the addresses itself when it tries to reach this host
		})
	}
	asking.Wait()
}
