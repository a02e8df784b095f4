package nodes

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/launch/internal/wire"
)

// planOf returns a plan of nodes and its start time.
func planOf(t rapid.TB, nodes ...wire.NodeInfo) (*Plan, time.Time) {
	t.Helper()
	info := wire.ProgramInfo{Name: "p", Nodes: append(nodes, wire.NodeInfo{Name: "peers", Kind: wire.KindPeers, Peers: 1})}
	if err := info.Check(); err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(0, 0)
	return NewPlan(info, begin, 10*time.Second), begin
}

func serviceNode(name string, after ...string) wire.NodeInfo {
	return wire.NodeInfo{Name: name, Kind: wire.KindService, Methods: []string{name + "(int) int"}, StopAfter: after}
}

func taskNode(name string) wire.NodeInfo { return wire.NodeInfo{Name: name, Kind: wire.KindTask} }

// wantActions compares the actions of a plan with the expected ones.
func wantActions(t *testing.T, got []Action, want ...Action) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// At the end of a program first the tasks end, then the services, in reverse order.
func TestPlanEnds(t *testing.T) {
	p, now := planOf(t, serviceNode("a"), serviceNode("b"), taskNode("c"))
	wantActions(t, p.DueActions(now, Situation{Peers: true}), Action{0, ActStart}, Action{1, ActStart}, Action{2, ActStart})
	wantActions(t, p.DueActions(now, Situation{Peers: true}))
	wantActions(t, p.DueActions(now, Situation{})) // a task runs
	if s := p.Exited(2, "exited with status 0", false, now); s != "" {
		t.Errorf("a task that is done: %q", s)
	}
	wantActions(t, p.DueActions(now, Situation{}), Action{1, ActStop})
	wantActions(t, p.DueActions(now, Situation{}))
	p.Exited(1, "exited with status 0", true, now)
	wantActions(t, p.DueActions(now, Situation{}), Action{0, ActStop})
	now = now.Add(10*time.Second + 1)
	wantActions(t, p.DueActions(now, Situation{}), Action{0, ActKill})
	p.Exited(0, "was killed", true, now)
	if p.IsActive() || len(p.Failures()) > 0 {
		t.Errorf("goes on: %v; failures: %v", p.IsActive(), p.Failures())
	}
}

func TestPlanRestarts(t *testing.T) {
	n := serviceNode("a")
	n.Restarts, n.Backoff = 3, time.Minute/2
	p, now := planOf(t, n)
	p.DueActions(now, Situation{Peers: true})
	for i, want := range []time.Duration{0, time.Minute / 2, time.Minute} {
		if s := p.Exited(0, "died", true, now); s == "" {
			t.Error("a death is not told")
		}
		if want > 0 {
			wantActions(t, p.DueActions(now.Add(want-1), Situation{Peers: true}))
		}
		now = now.Add(want)
		wantActions(t, p.DueActions(now, Situation{Peers: true}), Action{0, ActStart})
		if !p.Nodes[0].running {
			t.Fatalf("restart %d: it does not run", i)
		}
	}
	p.Exited(0, "died", true, now)
	if f := p.Failures(); !slices.Equal(f, []string{"a"}) || p.IsActive() || p.Nodes[0].Ended == "" {
		t.Errorf("failures %v, goes on %v, ended %q", f, p.IsActive(), p.Nodes[0].Ended)
	}
}

// When a program is stopped early, its tasks are asked to stop, and pending restarts are
// cancelled.
func TestPlanStops(t *testing.T) {
	n := serviceNode("a")
	n.Restarts, n.Backoff = 9, time.Hour
	p, now := planOf(t, n, taskNode("b"))
	p.DueActions(now, Situation{Peers: true})
	p.Exited(0, "died", true, now)
	p.DueActions(now, Situation{Peers: true})
	p.Exited(0, "died", true, now)
	wantActions(t, p.DueActions(now, Situation{Peers: true, Stop: true}), Action{1, ActStop})
	p.Exited(1, "exited with status 1", true, now)
	wantActions(t, p.DueActions(now, Situation{Peers: true, Stop: true}))
	wantActions(t, p.DueActions(now, Situation{Stop: true}), Action{0, ActEnd})
	if p.IsActive() || len(p.Failures()) > 0 {
		t.Errorf("goes on: %v; failures: %v", p.IsActive(), p.Failures())
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
		s := Situation{Peers: true}
		for range rapid.IntRange(0, 30).Draw(t, "deaths") {
			r.step(t, s)
			s.Stop = s.Stop || rapid.IntRange(0, 9).Draw(t, "stop") == 0
			s.Peers = s.Peers && rapid.IntRange(0, 9).Draw(t, "end") > 0
			r.die(t)
		}
		s.Peers, s.Stop = false, true
		for i := 0; r.plan.IsActive(); i++ {
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
	plan    *Plan
	now     time.Time
	started map[int]int
}

// step carries out the actions of the plan.
func (p *planRun) step(t *rapid.T, s Situation) {
	for _, a := range p.plan.DueActions(p.now, s) {
		n := p.plan.Nodes[a.Node]
		users := s.Peers || slices.ContainsFunc(p.plan.Nodes, func(o State) bool { return o.Info.Kind == wire.KindTask && o.active() })
		switch {
		case a.What == ActStart:
			if p.started[a.Node]++; p.started[a.Node] > 1+n.Info.Restarts {
				t.Fatalf("%s was started %d times", n.Info.Name, p.started[a.Node])
			}
		case n.Info.Kind == wire.KindService && users:
			t.Fatalf("service %s is asked to stop while others may call it", n.Info.Name)
		}
	}
	asked := 0
	for _, n := range p.plan.Nodes {
		if n.Info.Kind == wire.KindService && n.running && !n.asked.IsZero() {
			asked++
		}
	}
	if asked > 1 {
		t.Fatalf("%d services were asked to stop at once", asked)
	}
}

// die makes a running node end, and advances the time.
func (p *planRun) die(t *rapid.T) {
	p.now = p.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
	for i, n := range p.plan.Nodes {
		if n.running && rapid.Bool().Draw(t, "dies") {
			p.plan.Exited(i, "ended", rapid.Bool().Draw(t, "failed"), p.now)
		}
	}
}
