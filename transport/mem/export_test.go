package mem

import (
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// Break ends the streams of views between two members.
func (w *Network) Break(a, b elastic.ID) {
	for s := range w.members[a].carrier.streams() {
		if s.Peer() == b && (s.kind == mesh.Data || s.kind == mesh.Urgent) {
			_ = s.Reset()
		}
	}
}
