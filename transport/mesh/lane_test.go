package mesh

import (
	"net"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

// A lane on which this side has ended the view, and the other side never does, is reset as soon as it is not
// needed any more: when the mesh closes, when the peer is no member of the next view, or when another lane
// replaces it. A lane that is in use in a view stays until this side has ended the view.
func TestLanesOfTheSilent(t *testing.T) {
	unwanted := map[string]func(s *lanes){
		"closed":   (*lanes).close,
		"lost":     func(s *lanes) { s.retain(elastic.View{Members: []elastic.Member{{ID: "a"}}}) },
		"replaced": func(s *lanes) { s.add(newLane(piped{new(net.TCPConn)}, "b", dataStream)) },
	}
	for name, drop := range unwanted {
		for _, leaveFirst := range []bool{true, false} {
			near, far := net.Pipe()
			s, l := newLanes(), newLane(piped{near}, "b", dataStream)
			s.add(l)
			if leaveFirst {
				s.endView(l)
				drop(s)
			} else {
				drop(s)
				if err := near.SetDeadline(time.Time{}); err != nil {
					t.Errorf("%s: the lane has ended in its view: %v", name, err)
				}
				s.endView(l)
			}
			if near.SetDeadline(time.Time{}) == nil {
				t.Errorf("%s, left first %t: the lane goes on", name, leaveFirst)
			}
			_ = far.Close()
		}
	}
}
