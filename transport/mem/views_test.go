package mem_test

import (
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/transport/mem"
	"github.com/elrun/elrun/transport/mesh"
)

func TestViews(t *testing.T) {
	for name, bubble := range map[string]bool{"real time": false, "virtual time": true} {
		t.Run(name, func(t *testing.T) { views(t, bubble, nil) })
		t.Run(name+" on demand", func(t *testing.T) { views(t, bubble, networktest.Chain) })
	}
}

func views(t *testing.T, bubble bool, plan mesh.Plan) {
	var w *mem.Network
	networktest.Run(t, func(t *testing.T, n int) []elastic.Endpoint {
		w = mem.NewSparseNetwork(plan)
		t.Cleanup(func() { _ = w.Close() })
		var ends []elastic.Endpoint
		for i := range n {
			self := elastic.Member{ID: elastic.ID(rune('a' + i)), Index: i}
			ends = append(ends, elastic.Endpoint{Self: self, Network: w.Member(self.ID)})
		}
		return ends
	}, networktest.Options{Kill: func(e elastic.Endpoint) { w.Kill(e.Self.ID) }, Break: func(a, b elastic.Endpoint) { w.Break(a.Self.ID, b.Self.ID) }, Bubble: bubble, Views: 1000})
}
