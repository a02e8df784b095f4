package launch

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// ask reaches peers but not nodes, and signal reaches both. resume continues only stopped
// processes.
func TestProcessesSignals(t *testing.T) {
	s := newProcesses(&Options{}, "", nil)
	peer, node := &silentProcess{}, &silentProcess{}
	s.peers[1], s.nodes[maxPeers] = &child{index: 1, process: peer}, &child{index: maxPeers, process: node}
	s.resume()
	s.ask(syscall.SIGTERM)
	s.signal(syscall.SIGKILL)
	s.suspended = true
	s.resume()
	if want := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGCONT}; !slices.Equal(peer.got, want) || s.suspended {
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

// A peer that was asked to leave is killed after the grace period, once per period.
func TestProcessesKillOverdue(t *testing.T) {
	s := newProcesses(&Options{}, "", nil)
	now := time.Unix(100, 0)
	asked, other := &silentProcess{}, &silentProcess{}
	s.peers[0], s.peers[1] = &child{index: 0, process: asked, asked: now}, &child{index: 1, process: other}
	for _, after := range []time.Duration{time.Second, time.Second + 1, 2 * time.Second} {
		want := after == time.Second+1
		if lines := s.killOverdue(now.Add(after), time.Second); (len(lines) == 1) != want {
			t.Errorf("after %v: %q", after, lines)
		}
	}
	if !slices.Equal(asked.got, []syscall.Signal{syscall.SIGKILL}) || other.got != nil {
		t.Errorf("got %v and %v", asked.got, other.got)
	}
}
