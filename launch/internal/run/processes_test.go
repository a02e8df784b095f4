package run

import (
	"slices"
	"syscall"
	"testing"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// signal reaches peers and nodes. resume continues only stopped processes.
func TestProcessesSignals(t *testing.T) {
	s := newProcesses(&spec.Options{}, "", nil)
	peer, node := &silentProcess{}, &silentProcess{}
	s.peers[1], s.nodes[spec.MaxPeers] = &child{index: 1, Process: peer}, &child{index: spec.MaxPeers, Process: node}
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
	s.remove(spec.MaxPeers)
	if s.get(1) == nil || s.get(spec.MaxPeers) != nil || s.get(0) != nil {
		t.Errorf("peer %v, node %v, no peer %v", s.get(1), s.get(spec.MaxPeers), s.get(0))
	}
}

func TestChildEnvironment(t *testing.T) {
	e := wire.Environment{Job: "j", Peers: 1 << 10, FD: 3, Transport: "auto"}
	if got := proc.ChildEnvironment([]string{"A=b"}, e, e.Peers); !slices.Contains(got, "GOMAXPROCS=1") || !slices.Contains(got, "OMP_NUM_THREADS=1") || got[0] != "A=b" {
		t.Errorf("got %v", got)
	}
	got := proc.ChildEnvironment([]string{"GOMAXPROCS=7", "OMP_NUM_THREADS=5"}, e, e.Peers)
	if slices.Contains(got, "GOMAXPROCS=1") || slices.Contains(got, "OMP_NUM_THREADS=1") || !slices.Contains(got, "ELRUN_NP=1024") {
		t.Errorf("GOMAXPROCS that was set: got %v", got)
	}
}
