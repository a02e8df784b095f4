package inpeer

import (
	"slices"
	"strings"
	"sync"

	"github.com/elrun/elrun/elastic"
)

const (
	// maxFound bounds how many peers found on the local network are kept, and how many of them are
	// contacted at the same time.
	maxFound = 64
	// maxFoundPerAddr bounds the peers whose first address is the same.
	maxFoundPerAddr = 4
)

// lanPeers holds peers that were found on the local network. Anybody there can announce any number
// of false peers. So above a limit a new peer replaces the oldest peer, first one with the same
// address, but never a peer that has proved that it belongs to the job. The zero value is empty. It
// is safe for concurrent use.
type lanPeers struct {
	// mu guards all.
	mu  sync.Mutex
	all []lanPeer // oldest first
}

// lanPeer is one found peer.
type lanPeer struct {
	elastic.Member
	proved bool
}

// add records a found peer. It replaces an earlier entry with the same ID.
func (l *lanPeers) add(m elastic.Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(m.ID); i >= 0 {
		l.all[i].Member = m
		return
	}
	// A forger can invent IDs easily, but hardly addresses of other hosts, so there is a limit for
	// each address.
	at, n := firstAddr(m), 0
	same := func(o lanPeer) bool { return !o.proved && firstAddr(o.Member) == at }
	for _, o := range l.all {
		if same(o) {
			n++
		}
	}
	switch {
	case n >= maxFoundPerAddr:
		l.drop(same)
	case len(l.all) >= maxFound:
		l.drop(func(o lanPeer) bool { return !o.proved })
	}
	if len(l.all) < maxFound {
		l.all = append(l.all, lanPeer{Member: m})
	}
}

// drop removes the oldest peer for which the function fits returns true. The caller holds mu.
func (l *lanPeers) drop(fits func(lanPeer) bool) {
	if i := slices.IndexFunc(l.all, fits); i >= 0 {
		l.all = slices.Delete(l.all, i, i+1)
	}
}

// prove records that a peer belongs to the job.
func (l *lanPeers) prove(id elastic.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(id); i >= 0 {
		l.all[i].proved = true
	}
}

// index returns the index of the peer with an ID, or -1. The caller holds mu.
func (l *lanPeers) index(id elastic.ID) int {
	return slices.IndexFunc(l.all, func(o lanPeer) bool { return o.ID == id })
}

// members returns the peers, newest first.
func (l *lanPeers) members() []elastic.Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []elastic.Member
	for _, o := range slices.Backward(l.all) {
		out = append(out, o.Member)
	}
	return out
}

// firstAddr returns the host part of a peer's first address, as in /ip4/192.0.2.1, "" without an
// address.
func firstAddr(m elastic.Member) string {
	if len(m.Addrs) == 0 {
		return ""
	}
	parts := strings.SplitN(m.Addrs[0], "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}
