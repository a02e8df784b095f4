package launch

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/launch/internal/wire"
)

// planOf returns a plan of nodes and its start time.
func planOf(t rapid.TB, nodes ...wire.NodeInfo) (*nodePlan, time.Time) {
	t.Helper()
	info := wire.ProgramInfo{Name: "p", Nodes: append(nodes, wire.NodeInfo{Name: "peers", Kind: wire.KindPeers, Peers: 1})}
	if err := info.Check(); err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(0, 0)
	return newNodePlan(info, begin, 10*time.Second), begin
}

func serviceNode(name string, after ...string) wire.NodeInfo {
	return wire.NodeInfo{Name: name, Kind: wire.KindService, Methods: []string{name + "(int) int"}, StopAfter: after}
}

func taskNode(name string) wire.NodeInfo { return wire.NodeInfo{Name: name, Kind: wire.KindTask} }

// wantActions compares the actions of a plan with the expected ones.
func wantActions(t *testing.T, got []nodeAction, want ...nodeAction) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// At the end of a program first the tasks end, then the services, in reverse order.
func TestPlanEnds(t *testing.T) {
	p, now := planOf(t, serviceNode("a"), serviceNode("b"), taskNode("c"))
	wantActions(t, p.dueActions(now, situation{peers: true}), nodeAction{0, actStart}, nodeAction{1, actStart}, nodeAction{2, actStart})
	wantActions(t, p.dueActions(now, situation{peers: true}))
	wantActions(t, p.dueActions(now, situation{})) // a task runs
	if s := p.exited(2, "exited with status 0", false, now); s != "" {
		t.Errorf("a task that is done: %q", s)
	}
	wantActions(t, p.dueActions(now, situation{}), nodeAction{1, actStop})
	wantActions(t, p.dueActions(now, situation{}))
	p.exited(1, "exited with status 0", true, now)
	wantActions(t, p.dueActions(now, situation{}), nodeAction{0, actStop})
	now = now.Add(10*time.Second + 1)
	wantActions(t, p.dueActions(now, situation{}), nodeAction{0, actKill})
	p.exited(0, "was killed", true, now)
	if p.isActive() || len(p.failures()) > 0 {
		t.Errorf("goes on: %v; failures: %v", p.isActive(), p.failures())
	}
}

func TestPlanRestarts(t *testing.T) {
	n := serviceNode("a")
	n.Restarts, n.Backoff = 3, time.Minute/2
	p, now := planOf(t, n)
	p.dueActions(now, situation{peers: true})
	for i, want := range []time.Duration{0, time.Minute / 2, time.Minute} {
		if s := p.exited(0, "died", true, now); s == "" {
			t.Error("a death is not told")
		}
		if want > 0 {
			wantActions(t, p.dueActions(now.Add(want-1), situation{peers: true}))
		}
		now = now.Add(want)
		wantActions(t, p.dueActions(now, situation{peers: true}), nodeAction{0, actStart})
		if !p.nodes[0].running {
			t.Fatalf("restart %d: it does not run", i)
		}
	}
	p.exited(0, "died", true, now)
	if f := p.failures(); !slices.Equal(f, []string{"a"}) || p.isActive() || p.nodes[0].ended == "" {
		t.Errorf("failures %v, goes on %v, ended %q", f, p.isActive(), p.nodes[0].ended)
	}
}

// When a program is stopped early, its tasks are asked to stop, and pending restarts are
// cancelled.
func TestPlanStops(t *testing.T) {
	n := serviceNode("a")
	n.Restarts, n.Backoff = 9, time.Hour
	p, now := planOf(t, n, taskNode("b"))
	p.dueActions(now, situation{peers: true})
	p.exited(0, "died", true, now)
	p.dueActions(now, situation{peers: true})
	p.exited(0, "died", true, now)
	wantActions(t, p.dueActions(now, situation{peers: true, stop: true}), nodeAction{1, actStop})
	p.exited(1, "exited with status 1", true, now)
	wantActions(t, p.dueActions(now, situation{peers: true, stop: true}))
	wantActions(t, p.dueActions(now, situation{stop: true}), nodeAction{0, actEnd})
	if p.isActive() || len(p.failures()) > 0 {
		t.Errorf("goes on: %v; failures: %v", p.isActive(), p.failures())
	}
}

// For any deaths of nodes at any times, services outlive peers and tasks, at most one service is
// asked to stop at a time, no node is restarted more often than allowed, and every program ends.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := planRun{started: map[int]int{}}
		var nodes []wire.NodeInfo
		for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
			n := taskNode(string(rune('a' + i)))
			if rapid.Bool().Draw(t, "service") {
				n = serviceNode(n.Name)
			}
			n.Restarts = rapid.IntRange(0, 3).Draw(t, "restarts")
			nodes = append(nodes, n)
		}
		r.plan, r.now = planOf(t, nodes...)
		s := situation{peers: true}
		for range rapid.IntRange(0, 30).Draw(t, "deaths") {
			r.step(t, s)
			s.stop = s.stop || rapid.IntRange(0, 9).Draw(t, "stop") == 0
			s.peers = s.peers && rapid.IntRange(0, 9).Draw(t, "end") > 0
			r.die(t)
		}
		s.peers, s.stop = false, true
		for i := 0; r.plan.isActive(); i++ {
			r.step(t, s)
			r.die(t)
			if i > 200 {
				t.Fatal("it does not end")
			}
		}
	})
}

// planRun simulates a program.
type planRun struct {
	plan    *nodePlan
	now     time.Time
	started map[int]int
}

// step carries out the actions of the plan.
func (r *planRun) step(t *rapid.T, s situation) {
	for _, a := range r.plan.dueActions(r.now, s) {
		n := r.plan.nodes[a.node]
		users := s.peers || slices.ContainsFunc(r.plan.nodes, func(o nodeState) bool { return o.info.Kind == wire.KindTask && o.active() })
		switch {
		case a.what == actStart:
			if r.started[a.node]++; r.started[a.node] > 1+n.info.Restarts {
				t.Fatalf("%s was started %d times", n.info.Name, r.started[a.node])
			}
		case n.info.Kind == wire.KindService && users:
			t.Fatalf("service %s is asked to stop while others may call it", n.info.Name)
		}
	}
	asked := 0
	for _, n := range r.plan.nodes {
		if n.info.Kind == wire.KindService && n.running && !n.asked.IsZero() {
			asked++
		}
	}
	if asked > 1 {
		t.Fatalf("%d services were asked to stop at once", asked)
	}
}

// die makes a running node end, and advances the time.
func (r *planRun) die(t *rapid.T) {
	r.now = r.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
	for i, n := range r.plan.nodes {
		if n.running && rapid.Bool().Draw(t, "dies") {
			r.plan.exited(i, "ended", rapid.Bool().Draw(t, "failed"), r.now)
		}
	}
}
