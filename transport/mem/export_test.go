package mem

import (
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// NewSparseNetwork is NewNetwork with the plan p of the lanes of views.
func NewSparseNetwork(p mesh.Plan) *Network {
	w := NewNetwork()
	w.plan = p
	return w
}

// Break ends the streams of views between two members.
func (n *Network) Break(a, b elastic.ID) {
	for s := range n.members[a].carrier.streams() {
		if s.Peer() == b && (s.kind == mesh.Data || s.kind == mesh.Urgent) {
			_ = s.Reset()
		}
	}
}
