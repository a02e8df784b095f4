package launch

import (
	"context"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

// newIdleSupervisor returns a supervisor of n peers that take signals only, and the peers.
func newIdleSupervisor(t *testing.T, o Options, n int) (*supervisor, []*silentProcess) {
	t.Helper()
	o.Peers, o.Output.Stdout, o.Output.Stderr = n, io.Discard, io.Discard
	s := newRunner(o, "", startOrder{Secret: make([]byte, secretSize)}).peers
	t.Cleanup(func() { _ = s.report.console.close(context.Background(), "") })
	peers := make([]*silentProcess, n)
	for i := range peers {
		peers[i] = &silentProcess{}
		s.procs.peers[i] = &child{index: i, process: peers[i]}
		s.rendezvous.hello(i, elastic.Member{ID: elastic.ID("member-" + string(rune('a'+i)))})
	}
	return s, peers
}

// The peers with the highest indices are asked to leave, and do not count as running any more.
func TestSupervisorScalesDown(t *testing.T) {
	s, peers := newIdleSupervisor(t, Options{}, 3)
	s.pending = []pendingRestart{{index: 7}}
	if text, err := s.rescale(1); err != nil || text != "3 local peers become 1: asking peers 2, 1 to leave" {
		t.Errorf("got %q, error %v", text, err)
	}
	for i, p := range peers {
		if asked := slices.Equal(p.got, []syscall.Signal{syscall.SIGTERM}); asked != (i > 0) {
			t.Errorf("peer %d got %v", i, p.got)
		}
	}
	if s.want != 1 || len(s.pending) != 0 || len(s.procs.leaving()) != 2 {
		t.Errorf("%d peers wanted, restarts %v, leaving %v", s.want, s.pending, s.procs.leaving())
	}
	if _, err := s.rescale(0); err == nil {
		t.Error("no error for a job without peers")
	}
}

// A crashed peer is not restarted if the job is finished, its group gave up, or no other peer is
// left.
func TestSupervisorRestartsNone(t *testing.T) {
	s, _ := newIdleSupervisor(t, Options{Membership: Membership{Restart: 3}}, 2)
	s.crashed(Exit{Code: StatusQuorum}, time.Hour, time.Now())
	s.finished = func() bool { return true }
	s.crashed(Exit{Code: 1}, time.Hour, time.Now())
	s.finished = func() bool { return false }
	clear(s.procs.peers)
	s.crashed(Exit{Code: 1}, time.Hour, time.Now())
	if len(s.pending) != 0 || s.restarts.used() != 0 || s.isActive() {
		t.Errorf("restarts %v, %d used, active %v", s.pending, s.restarts.used(), s.isActive())
	}
}

// A peer that died twice in a row is restarted after a pause, unless the job ends before.
func TestSupervisorPostponesRestart(t *testing.T) {
	s, _ := newIdleSupervisor(t, Options{Membership: Membership{Restart: 3}}, 2)
	now := time.Now()
	s.restarts.quick[0] = 1
	s.crashed(Exit{Index: 0, Code: 1, at: now}, 0, now)
	if len(s.pending) != 1 || !s.pending[0].at.Equal(now.Add(firstPause)) {
		t.Errorf("restarts %v, want one after %v", s.pending, firstPause)
	}
	s.cancelRestarts()
	s.restartDue(now.Add(time.Hour))
	if s.restarts.used() != 1 || len(s.procs.peers) != 2 {
		t.Errorf("%d restarts used, %d peers", s.restarts.used(), len(s.procs.peers))
	}
}
