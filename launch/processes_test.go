package launch

import (
	"slices"
	"syscall"
	"testing"
)

// signal reaches peers and nodes. resume continues only stopped processes.
func TestProcessesSignals(t *testing.T) {
	s := newProcesses(&Options{}, "", nil)
	peer, node := &silentProcess{}, &silentProcess{}
	s.peers[1], s.nodes[maxPeers] = &child{index: 1, process: peer}, &child{index: maxPeers, process: node}
	s.resume()
	s.signal(syscall.SIGKILL)
	s.suspended = true
	s.resume()
	if want := []syscall.Signal{syscall.SIGKILL, syscall.SIGCONT}; !slices.Equal(peer.got, want) || s.suspended {
		t.Errorf("the peer got %v, want %v", peer.got, want)
	}
	if want := []syscall.Signal{syscall.SIGKILL, syscall.SIGCONT}; !slices.Equal(node.got, want) {
		t.Errorf("the node got %v, want %v", node.got, want)
	}
	s.remove(maxPeers)
	if s.get(1) == nil || s.get(maxPeers) != nil || s.get(0) != nil {
		t.Errorf("peer %v, node %v, no peer %v", s.get(1), s.get(maxPeers), s.get(0))
	}
}
