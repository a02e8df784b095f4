package p2p_test

import (
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/transport/p2p"
)

func TestViews(t *testing.T) {
	for name, cfg := range paths() {
		o := networktest.Options{Kill: func(e elastic.Endpoint) { _ = e.Network.(*p2p.Host).Close() }}
		if cfg.Transport == "quic" {
			o.Kill = nil // nothing tells that nobody listens at a UDP port any more
		}
		t.Run(name, func(t *testing.T) {
			networktest.Run(t, func(t *testing.T, n int) []elastic.Endpoint {
				hs, v := hosts(t, n, cfg)
				introduce(t, hs, v)
				var ends []elastic.Endpoint
				for i, h := range hs {
					ends = append(ends, elastic.Endpoint{Self: v.Members[i], Network: h, Close: h.Close})
				}
				return ends
			}, o)
		})
	}
}
