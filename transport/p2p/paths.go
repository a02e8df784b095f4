package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// offer returns this host's offer with ticket t. With the zero ticket the receiver cannot dial.
func (h *Host) offer(t direct.Ticket) *offer {
	o := &offer{path: h.path, encrypt: h.encrypt}
	if h.port != nil {
		o.Offer = h.port.Offer(t)
		o.Doors = slices.Concat(o.Doors, h.mappedDoors(o.Doors))
	}
	return o
}

// encryption returns the TLS configuration for direct connections with a peer, or nil if both sides
// have Encrypt "never". TLS checks the peers' libp2p identities.
func (h *Host) encryption(id peer.ID, theirs *offer) *tls.Config {
	if h.encrypt == neverEncrypt && theirs.encrypt == neverEncrypt {
		return nil
	}
	cfg, _ := h.identity.ConfigForPeer(id) // the channel of the key is not needed: the key is in the ID
	cfg.DynamicRecordSizingDisabled = true // small first records serve web pages
	return cfg
}

// Timeouts of a dial for a direct connection. A TCP target that does not answer within tcpDialTime, as
// where a firewall drops packets, is not tried again for silentTime. A Unix socket has unixDialTime:
// nothing is dropped within a host, but a loaded host may schedule the peer late.
const (
	tcpDialTime  = 2 * time.Second
	unixDialTime = 30 * time.Second
	silentTime   = time.Minute
)

// errSilent means that the target did not answer in the last silentTime.
var errSilent = errors.New("no answer a moment ago")

// concludeUpgrade ends the upgrade of a data stream. With a connection it closes s, starts to watch c, and
// returns the stream over c. Without one it returns s as the fallback, and has the watch retry
// where a direct connection was wanted. why is the reason for the choice.
func concludeUpgrade(s *stream, c *direct.Conn, why string) mesh.Stream {
	if c == nil {
		st := &fallback{stream: s, why: why}
		if why != "" && !isRelayed(s.Conn().RemoteMultiaddr()) {
			s.h.watch.addFallback(st)
		}
		return st
	}
	_ = s.Close() // both sides have read all of it
	s.h.watch.add(c, s.Conn().RemotePeer())
	return socketOf(c, s.Peer(), why)
}

// dialBest dials the best direct connection that both sides want. The result why is the reason why
// c is nil or is not of the best kind. Both results are zero if no direct connection is wanted.
func (h *Host) dialBest(ctx context.Context, s *stream, theirs *offer) (c *direct.Conn, why string) {
	unix, tcp := h.candidates(s, theirs)
	if unix != nil {
		if c, why = h.dialFirst(ctx, s, theirs, []direct.Target{*unix}); c != nil {
			return c, ""
		}
	}
	if !tcp {
		return nil, why
	}
	all, chosen := h.byTCP(ctx, s.Conn(), theirs)
	c, late := h.dialFirst(ctx, s, theirs, all)
	if why == "" {
		why = late
	}
	if c != nil && why == "" {
		why = chosen
	}
	return c, why
}

// dialFirst dials targets in their order until one is reached. why is the error of the first failure;
// "" if there was none.
func (h *Host) dialFirst(ctx context.Context, s *stream, theirs *offer, all []direct.Target) (c *direct.Conn, why string) {
	for _, to := range all {
		c, err := h.dialTarget(ctx, s.Conn().RemotePeer(), to, theirs)
		if err == nil {
			return c, why
		}
		if why == "" {
			why = err.Error()
		}
	}
	return nil, why
}

// candidates returns the peer's Unix socket if this host may dial it, nil otherwise, and whether it may
// dial over TCP.
func (h *Host) candidates(s *stream, theirs *offer) (unix *direct.Target, tcp bool) {
	mine := h.offer(direct.Ticket{})
	if mine.path == mesh.StreamPath || theirs.path == mesh.StreamPath || h.punch.isPunched(s.Conn()) {
		return nil, false
	}
	if to, ok := theirs.ByUnix(); ok && sameSite(mine, theirs) {
		unix = &to
	}
	addr, ok := hostOf(s.Conn().RemoteMultiaddr())
	if ok {
		_, ok = theirs.ByTCP(addr)
	}
	return unix, ok
}

// dialTarget dials one target, and marks it as unresponsive if a TCP dial has no answer within tcpDialTime.
func (h *Host) dialTarget(ctx context.Context, id peer.ID, to direct.Target, theirs *offer) (*direct.Conn, error) {
	if h.isSilent(to) {
		return nil, fmt.Errorf("%s %s: %w", to.Network, to.Addr, errSilent)
	}
	limit := tcpDialTime
	if to.Network == "unix" {
		limit = unixDialTime
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := direct.Dial(within, to, theirs.Ticket, h.encryption(id, theirs))
	if err != nil && to.Network == "tcp" && within.Err() != nil && ctx.Err() == nil {
		h.markSilent(to)
	}
	return c, err
}

// markSilent marks a target as unresponsive, and forgets old marks.
func (h *Host) markSilent(to direct.Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.silent, func(_ direct.Target, since time.Time) bool { return time.Since(since) > silentTime })
	h.silent[to] = time.Now()
}

// clearSilent removes the mark of markSilent.
func (h *Host) clearSilent(to direct.Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.silent, to)
}

// isSilent reports whether a target was marked as unresponsive in the last silentTime.
func (h *Host) isSilent(to direct.Target) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, ok := h.silent[to]
	return ok && time.Since(since) <= silentTime
}
