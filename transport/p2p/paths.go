package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

// encryptNames returns the values of Config.Encrypt. The index of each is its code in an offer.
func encryptNames() []string { return []string{"auto", "always", "never"} }

// neverEncrypt is the code of "never".
const neverEncrypt = 2

// code returns the index of name in names; 0 for "". The error names the option by the parameter what.
func code(what, name string, names []string) (byte, error) {
	if name == "" {
		return 0, nil
	}
	i := slices.Index(names, name)
	if i < 0 {
		return 0, fmt.Errorf("unknown %s %q (%s)", what, name, strings.Join(names, " or "))
	}
	return byte(i), nil
}

// offer is the payload of an Offer frame: the wishes of a host and the addresses of its direct
// port.
type offer struct {
	path    mesh.Path
	encrypt byte
	direct.Offer
}

// appendOffer appends an Offer frame to b.
func appendOffer(b []byte, o *offer) []byte {
	body := o.Offer.Append([]byte{byte(o.path), o.encrypt})
	return wire.AppendFrame(b, wire.Offer, body)
}

// readOffer reads an Offer frame.
func readOffer(r io.Reader) (offer, error) {
	_, b, err := wire.ReadFrame(r, wire.Offer)
	if err != nil {
		return offer{}, err
	}
	return decodeOffer(b)
}

// decodeOffer decodes the payload of an Offer frame.
func decodeOffer(b []byte) (offer, error) {
	if len(b) < 2 || int(b[0]) >= len(mesh.Paths()) || int(b[1]) >= len(encryptNames()) {
		return offer{}, fmt.Errorf("read offer: %d bytes: %w", len(b), wire.ErrFormat)
	}
	o, err := direct.DecodeOffer(b[2:])
	return offer{path: mesh.Path(b[0]), encrypt: b[1], Offer: o}, err
}

// offer returns this host's offer with ticket t. With the zero ticket the receiver cannot dial.
func (h *Host) offer(t direct.Ticket) *offer {
	o := &offer{path: h.path, encrypt: h.encrypt}
	if h.port != nil {
		o.Offer = h.port.Offer(t)
		o.Doors = slices.Concat(o.Doors, h.mappedDoors(o.Doors))
	}
	return o
}

// sameSite reports whether two hosts have the same site ID, so that they may share a kernel, and
// both allow Unix sockets.
func sameSite(a, b *offer) bool {
	local := func(o *offer) bool { return o.path <= mesh.UnixPath }
	return local(a) && local(b) && a.Site == b.Site && a.Site != [32]byte{}
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

// Timeouts of a dial for a direct connection. A TCP target that does not answer within wayTime, as
// where a firewall drops packets, is not tried again for closedTime. A Unix socket has nearTime:
// nothing is dropped within a host, but a loaded host may schedule the peer late.
const (
	wayTime    = 2 * time.Second
	nearTime   = 30 * time.Second
	closedTime = time.Minute
)

// errClosedWay means that the target did not answer in the last closedTime.
var errClosedWay = errors.New("no answer a moment ago")

// chosen ends the upgrade of a data stream. With a connection it closes s, starts to watch c, and
// returns the stream over c. Without one it returns s as the fallback, and has the watch retry
// where a direct connection was wanted. why is the reason for the choice.
func chosen(s *stream, c *direct.Conn, why string) mesh.Stream {
	if c == nil {
		st := &stayed{stream: s, why: why}
		if why != "" && !isRelayed(s.Conn().RemoteMultiaddr()) {
			s.h.watch.addStandIn(st)
		}
		return st
	}
	_ = s.Close() // both sides have read all of it
	s.h.watch.add(c, s.Conn().RemotePeer())
	return socketOf(c, s.Peer(), why)
}

// betterConn dials the best direct connection that both sides want. The result why is the reason why
// c is nil or is not of the best kind. Both results are zero if no direct connection is wanted.
func (h *Host) betterConn(ctx context.Context, s *stream, theirs *offer) (c *direct.Conn, why string) {
	unix, tcp := h.ways(s, theirs)
	if unix != nil {
		if c, why = h.firstOf(ctx, s, theirs, []direct.Target{*unix}); c != nil {
			return c, ""
		}
	}
	if !tcp {
		return nil, why
	}
	all, chosen := h.byTCP(ctx, s.Conn(), theirs)
	c, late := h.firstOf(ctx, s, theirs, all)
	if why == "" {
		why = late
	}
	if c != nil && why == "" {
		why = chosen
	}
	return c, why
}

// firstOf dials targets in their order until one is reached. why is the error of the first failure;
// "" if there was none.
func (h *Host) firstOf(ctx context.Context, s *stream, theirs *offer, all []direct.Target) (c *direct.Conn, why string) {
	for _, to := range all {
		c, err := h.tryWay(ctx, s.Conn().RemotePeer(), to, theirs)
		if err == nil {
			return c, why
		}
		if why == "" {
			why = err.Error()
		}
	}
	return nil, why
}

// ways returns the peer's Unix socket if this host may dial it, nil otherwise, and whether it may
// dial over TCP.
func (h *Host) ways(s *stream, theirs *offer) (unix *direct.Target, tcp bool) {
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

// tryWay dials one target, and marks it as unresponsive if a TCP dial has no answer within wayTime.
func (h *Host) tryWay(ctx context.Context, id peer.ID, to direct.Target, theirs *offer) (*direct.Conn, error) {
	if h.isClosed(to) {
		return nil, fmt.Errorf("%s %s: %w", to.Network, to.Addr, errClosedWay)
	}
	limit := wayTime
	if to.Network == "unix" {
		limit = nearTime
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := direct.Dial(within, to, theirs.Ticket, h.encryption(id, theirs))
	if err != nil && to.Network == "tcp" && within.Err() != nil && ctx.Err() == nil {
		h.noteSilent(to)
	}
	return c, err
}

// noteSilent marks a target as unresponsive, and forgets old marks.
func (h *Host) noteSilent(to direct.Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.silent, func(_ direct.Target, since time.Time) bool { return time.Since(since) > closedTime })
	h.silent[to] = time.Now()
}

// noteHeard removes the mark of noteSilent.
func (h *Host) noteHeard(to direct.Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.silent, to)
}

// isClosed reports whether a target was marked as unresponsive in the last closedTime.
func (h *Host) isClosed(to direct.Target) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, ok := h.silent[to]
	return ok && time.Since(since) <= closedTime
}
