package p2p

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
)

// gate is libp2p's connection gater: it decides which peers may connect, in either direction. It
// also records the address at which each member was reached last. A peer is in known or in banned,
// never in both. All methods are safe for concurrent use.
//
// The gate allows, depending on its knowledge of a peer:
//
//	            dial to it     inbound connection
//	member      yes            yes
//	being asked yes            yes             during a call of Prove (allowDial)
//	stranger    no             if open         a policy is set (admitStrangers)
//	banned      no             no              for good (ban)
//
// The gate decides at three points: before a dial to a peer, before a dial to one of its addresses,
// and after the security handshake, which proves the peer ID of an inbound connection. The two
// other methods of the interface always allow: one is called before the peer ID is known, the other
// after the decision.
type gate struct {
	self peer.ID

	// mu guards the fields below.
	mu      sync.RWMutex
	open    bool                     // strangers may connect
	known   map[peer.ID]*memberState // the members
	ids     map[elastic.ID]peer.ID   // the decoded IDs of members (decode)
	banned  map[peer.ID]struct{}     // refused for good
	allowed map[peer.ID]int          // number of calls of Prove in progress, for which dials are allowed
}

// memberState is the gate's knowledge of a member.
type memberState struct {
	// since is the time at which the member was introduced.
	since time.Time
	// reached is set once the member has had a connection with this host, has opened a stream
	// within the host, or was in a view that all members entered.
	reached bool
	// at is the address at which the member was reached last. It is nil before the first
	// connection, and after a failed dial to the address.
	at net.IP
}

// newGate returns a gate that admits nobody yet.
func newGate(self peer.ID) *gate {
	return &gate{self: self, known: make(map[peer.ID]*memberState), ids: make(map[elastic.ID]peer.ID),
		banned: make(map[peer.ID]struct{}), allowed: make(map[peer.ID]int)}
}

// admitStrangers lets strangers connect from now on.
func (g *gate) admitStrangers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

// add admits id from now on, and starts its grace period unless it was admitted before. It returns
// false, and admits nobody, for a banned peer.
func (g *gate) add(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	if g.known[id] == nil {
		g.known[id] = &memberState{since: time.Now()}
	}
	return true
}

// ban refuses id for good. The caller closes the connections. A ban is never lifted: a process that
// may join again has a new ID.
func (g *gate) ban(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, id)
	maps.DeleteFunc(g.ids, func(_ elastic.ID, known peer.ID) bool { return known == id })
	g.banned[id] = struct{}{}
}

// decode returns the libp2p form of an ID. It caches the decoded IDs of members: at each new view
// every member decodes the IDs of all members several times, and one decoding takes microseconds.
func (g *gate) decode(text elastic.ID) (peer.ID, error) {
	g.mu.RLock()
	id, ok := g.ids[text]
	g.mu.RUnlock()
	if ok {
		return id, nil
	}
	id, err := idOf(string(text))
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// IDs of strangers are not cached, because their number is not bounded.
	if g.known[id] != nil {
		g.ids[text] = id
	}
	return id, nil
}

// isBanned reports whether ban was called with id.
func (g *gate) isBanned(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, bad := g.banned[id]
	return bad
}

// isMember reports whether id is admitted.
func (g *gate) isMember(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil
}

// all returns the admitted peers, in no order.
func (g *gate) all() []peer.ID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Keys(g.known))
}

// allowDial allows dials to id until done is called.
func (g *gate) allowDial(id peer.ID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed[id]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.allowed[id]--; g.allowed[id] == 0 {
			delete(g.allowed, id)
		}
	}
}

// markReached records that id has been reached, and the address addr of the connection. addr is nil
// if id was reached in another way: by a view, by a stream within the host, or by hole punching. A
// nil or relayed addr does not change the recorded address.
func (g *gate) markReached(id peer.ID, addr multiaddr.Multiaddr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil {
		return
	}
	f.reached = true
	if addr == nil {
		return
	}
	if ip := ipOf(addr); ip != nil {
		f.at = ip
	}
}

// forgetAddr removes the recorded address of id, after a dial to it failed, so that the next dials
// try all addresses. It reports whether there was a recorded address: then the failed dial has
// tried only that address, and the caller dials again at once.
func (g *gate) forgetAddr(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return false
	}
	f.at = nil
	return true
}

// wasReached reports whether id has been reached before (markReached).
func (g *gate) wasReached(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	return f != nil && f.reached
}

// graceTime is the grace period after the introduction of a member. In this period a refused
// connection does not prove that the member is gone: all peers of a job start at about the same
// time, so the member may not listen yet.
const graceTime = time.Second

// graceLeft returns the rest of the grace period of id; 0 if id has been reached before, or is
// unknown.
func (g *gate) graceLeft(id peer.ID) time.Duration {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.reached {
		return 0
	}
	return max(0, graceTime-time.Since(f.since))
}

// InterceptPeerDial implements connmgr.ConnectionGater. It allows dials to members, and to the
// peers of calls of Prove in progress.
func (g *gate) InterceptPeerDial(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil || g.allowed[id] > 0
}

// InterceptAddrDial implements connmgr.ConnectionGater. If the gate has a recorded address of the
// member, it allows only this address: a dial to this address is the fastest and surest test of
// whether the member still runs.
func (g *gate) InterceptAddrDial(id peer.ID, addr multiaddr.Multiaddr) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return true
	}
	return f.at.Equal(ipOf(addr))
}

// InterceptAccept implements connmgr.ConnectionGater. It allows all addresses, because the peer ID
// is not known before the handshake.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured implements connmgr.ConnectionGater. It allows members, peers of calls of Prove
// in progress, and inbound strangers if the gate is open. It refuses banned peers.
func (g *gate) InterceptSecured(d network.Direction, id peer.ID, _ network.ConnMultiaddrs) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	return g.known[id] != nil || g.allowed[id] > 0 || g.open && d == network.DirInbound
}

// InterceptUpgraded implements connmgr.ConnectionGater. InterceptSecured has decided already.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
