package p2p

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/gologshim"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/x/rate"
)

// muxer returns yamux with windows that are large from the start. On a local network the round trip
// is too short for yamux's windows to grow.
func muxer() *yamux.Transport {
	m := *yamux.DefaultTransport
	m.InitialStreamWindowSize = 4 << 20
	return &m
}

// handshakeTime is how long the security handshake of a connection may take, after which the peer
// ID is known.
const handshakeTime = 5 * time.Second

// secure returns the security protocols for a value of Config.Security, in order of preference. TLS
// comes first, as the standard library uses the processor's AES instructions.
func secure(name string, key crypto.PrivKey, muxers []upgrader.StreamMuxer) ([]sec.SecureTransport, error) {
	var all []sec.SecureTransport
	if name == "" || name == "tls" {
		t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
		if err != nil {
			return nil, fmt.Errorf("make TLS: %w", err)
		}
		all = append(all, t)
	}
	if name == "" || name == "noise" {
		t, err := noise.New(noise.ID, key, muxers)
		if err != nil {
			return nil, fmt.Errorf("make Noise: %w", err)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("unknown security %q (tls or noise)", name)
	}
	return all, nil
}

// resources limits the connections and streams of each peer. libp2p's defaults would allow 8
// connections per address, and so 8 peers per host. Unauthenticated inbound connections have a
// limit of their own, so that they cannot use up the capacity for outbound ones.
func resources() (network.ResourceManager, error) {
	const peers, perPeer, streams = 1024, 8, 128
	partial := rcmgr.PartialLimitConfig{
		Transient: rcmgr.ResourceLimits{Conns: peers, ConnsInbound: maxHalfOpen, ConnsOutbound: peers, Streams: peers,
			StreamsInbound: peers, StreamsOutbound: peers},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: perPeer, ConnsInbound: perPeer, ConnsOutbound: perPeer,
			Streams: streams, StreamsInbound: streams, StreamsOutbound: streams,
		},
	}
	return rcmgr.NewResourceManager(
		rcmgr.NewFixedLimiter(partial.Build(rcmgr.InfiniteLimits)),
		rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: peers}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: peers}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{}))
}

// quiet discards libp2p's log, unless the user has set libp2p's variable GOLOG_LOG_LEVEL. Errors
// that matter are returned to the caller.
func quiet() {
	if _, asked := os.LookupEnv("GOLOG_LOG_LEVEL"); !asked {
		gologshim.SetDefaultHandler(slog.DiscardHandler)
	}
}
