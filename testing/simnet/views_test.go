package simnet_test

import (
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/transport/mesh"
)

func TestViews(t *testing.T) { views(t, nil) }

// Views whose lanes are made only when they are needed pass the same checks.
func TestViewsOnDemand(t *testing.T) { views(t, networktest.Chain) }

func views(t *testing.T, plan mesh.Plan) {
	for name, link := range map[string]simnet.Link{
		"no delay": {},
		"lag":      {Delay: time.Millisecond, Lag: 10 * time.Millisecond},
		"slow":     {Delay: time.Millisecond, Bandwidth: 50 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var b *bench
			networktest.Run(t, func(t *testing.T, n int) []elastic.Endpoint {
				b = newBench(t, n, simnet.Config{Seed: 1, Link: link, Plan: plan})
				return b.ends
			}, networktest.Options{
				Kill:   func(e elastic.Endpoint) { b.Kill(e.Self.ID) },
				Break:  func(x, y elastic.Endpoint) { b.Reset(x.Self.ID, y.Self.ID, simnet.Data) },
				Bubble: true,
			})
		})
	}
}
