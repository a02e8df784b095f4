package discovery

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/gologshim"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const (
	// dialTime is the time limit of one connection attempt with its handshake.
	dialTime = 3 * time.Second
	// maxConns bounds the connections of a bootstrap node, maxConnsPerIP the connections with one
	// address, and maxHalfOpen the connections whose handshake has not ended. A single address
	// cannot take all connections, and unfinished handshakes cannot crowd out finished ones.
	maxConns, maxConnsPerIP, maxHalfOpen = 512, 64, 64
	// maxStreams bounds the streams of one peer.
	maxStreams = 16
	// maxMemory bounds the memory for connections and streams of a node, in bytes.
	maxMemory = 128 << 20
)

// node is a libp2p host with TCP and TLS. Its Close also closes the parts that the host is built
// on.
type node struct {
	host.Host
	resources []io.Closer // parts to close if the host cannot be built, last one first
}

// newNode returns a host that does not listen yet; a bootstrap node adds listeners afterwards.
// manager closes connections when there are too many; it may be nil.
func newNode(key crypto.PrivKey, manager connmgr.ConnManager) (*node, error) {
	silenceLogs()
	n := &node{}
	if err := n.build(key, manager); err != nil {
		return nil, errors.Join(err, n.closeResources())
	}
	return n, nil
}

// build makes the host of a few parts of libp2p. The default constructor of libp2p would add
// transports and services that a node does not use.
func (n *node) build(key crypto.PrivKey, manager connmgr.ConnManager) error {
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return fmt.Errorf("make an ID: %w", err)
	}
	store, err := pstoremem.NewPeerstore()
	if err != nil {
		return fmt.Errorf("make peerstore: %w", err)
	}
	// n.resources grows with each part, so that a failure closes the parts made so far.
	n.resources = append(n.resources, store)
	if err := errors.Join(store.AddPrivKey(id, key), store.AddPubKey(id, key.GetPublic())); err != nil {
		return fmt.Errorf("store identity: %w", err)
	}
	limits, err := limits()
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	n.resources = append(n.resources, limits)
	bus := eventbus.NewBus()
	// The black-hole detectors are off: they would block dials after failures, and a session makes
	// only a few dials.
	net, err := swarm.NewSwarm(id, store, bus, swarm.WithResourceManager(limits), swarm.WithDialTimeout(dialTime),
		swarm.WithUDPBlackHoleSuccessCounter(nil), swarm.WithIPv6BlackHoleSuccessCounter(nil))
	if err != nil {
		return fmt.Errorf("make swarm: %w", err)
	}
	n.resources = append(n.resources, net)
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}}
	security, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return fmt.Errorf("make TLS: %w", err)
	}
	up, err := upgrader.New([]sec.SecureTransport{security}, muxers, nil, limits, nil, upgrader.WithAcceptTimeout(dialTime))
	if err != nil {
		return fmt.Errorf("make upgrader: %w", err)
	}
	t, err := tcp.NewTCPTransport(up, limits, nil, tcp.DisableReuseport())
	if err != nil {
		return fmt.Errorf("make TCP: %w", err)
	}
	if err := net.AddTransport(t); err != nil {
		return fmt.Errorf("add TCP: %w", err)
	}
	h, err := basichost.NewHost(net, &basichost.HostOpts{EventBus: bus, ConnManager: manager, UserAgent: "elrun", NegotiationTimeout: dialTime})
	if err != nil {
		return fmt.Errorf("make host: %w", err)
	}
	h.Start()
	n.Host = h
	return nil
}

// closeResources closes the parts of the host in reverse order.
func (n *node) closeResources() error {
	var errs []error
	for i := len(n.resources) - 1; i >= 0; i-- {
		errs = append(errs, n.resources[i].Close())
	}
	return errors.Join(errs...)
}

// dialError returns the cause of a failed connection, in one line. An error of the swarm lists
// every address that was tried, over several lines; the first cause is enough for a user.
func dialError(err error) error {
	var all *swarm.DialError
	for errors.As(err, &all) {
		if len(all.DialErrors) == 0 {
			if all.Cause == nil {
				return err
			}
			return all.Cause
		}
		err, all = all.DialErrors[0].Cause, nil
	}
	return err
}

// limits returns the resource limits of a node, which bound the resources that others can take.
func limits() (network.ResourceManager, error) {
	all := rcmgr.ResourceLimits{Conns: maxConns, ConnsInbound: maxConns, ConnsOutbound: maxConns, FD: maxConns,
		Streams: maxConns * maxStreams, StreamsInbound: maxConns * maxStreams, StreamsOutbound: maxConns * maxStreams, Memory: maxMemory}
	transient := all
	transient.Conns, transient.ConnsInbound = maxHalfOpen, maxHalfOpen
	// One peer gets an eighth of the memory, so that at least eight are served.
	one := rcmgr.ResourceLimits{Conns: 4, ConnsInbound: 4, ConnsOutbound: 4,
		Streams: maxStreams, StreamsInbound: maxStreams, StreamsOutbound: maxStreams, Memory: maxMemory / 8}
	partial := rcmgr.PartialLimitConfig{System: all, Transient: transient, PeerDefault: one}
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(partial.Build(rcmgr.InfiniteLimits)),
		rcmgr.WithMetricsDisabled(),
		// One limit per IPv4 address and per IPv6 /56, the usual size of one customer's network.
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: maxConnsPerIP}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: maxConnsPerIP}}))
}

// silenceLogs discards the logs of libraries, unless the user has asked for them by the libraries'
// own variable GOLOG_LOG_LEVEL.
func silenceLogs() {
	if _, asked := os.LookupEnv("GOLOG_LOG_LEVEL"); !asked {
		gologshim.SetDefaultHandler(slog.DiscardHandler)
		golog.SetupLogging(golog.Config{Level: golog.LevelFatal})
	}
}
