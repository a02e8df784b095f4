package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// nodePlan decides when services and tasks of a program start, restart and stop. The launcher
// carries out the actions of the plan, and reports the ends of nodes to it. It does no I/O, reads
// no clock, and is not safe for concurrent use.
//
//	due --start--> running --failed, restarts left--> due
//	                  |------failed for good, or a task is done--> ended
//	                  +--asked to stop--> ended
//
// Tasks are asked to stop when the program is stopped early. Services are asked to stop one after
// the other, when neither peers nor tasks are left.
type nodePlan struct {
	nodes []nodeState // services and tasks, in the order of their declaration
	order []int       // services in the order in which they stop
	grace time.Duration
}

// nodeState is one service or task.
type nodeState struct {
	info wire.NodeInfo
	// restarts counts the failures of the node, and gives the pause before each new start.
	restarts *restarts
	running  bool
	begun    time.Time
	// due is the time of the next start; zero if none is due.
	due   time.Time
	asked time.Time // time of the request to stop; zero without one
	// ended says why the node will not be started again; "" if the node may be started.
	ended  string
	failed bool // ended is a failure
}

// situation is the state of the program except the nodes of the plan.
type situation struct {
	peers bool // some peers are running or will be started
	stop  bool // the program has to end early
	// interrupted: a signal ends the program, and people need no lines about the ends of nodes.
	interrupted bool
}

// nodeAction is an action for a node.
type nodeAction struct {
	node int
	what actionKind
}

// actionKind is the kind of a nodeAction.
type actionKind int

const (
	actStart actionKind = iota
	actStop             // ask it to end
	actKill             // kill it: it has not ended in time
	actEnd              // report to its callers that it has ended for good
)

// newNodePlan returns a plan in which all nodes are due. The program must have passed check.
func newNodePlan(p wire.ProgramInfo, now time.Time, grace time.Duration) *nodePlan {
	plan := &nodePlan{grace: grace}
	for _, n := range p.Others() {
		s := nodeState{info: n, restarts: newRestarts(n.Restarts), due: now}
		if n.Backoff > 0 {
			s.restarts.pause = n.Backoff
		}
		plan.nodes = append(plan.nodes, s)
	}
	// StopOrder returns no error here, as check has passed.
	names, _ := p.StopOrder()
	for _, name := range names {
		plan.order = append(plan.order, slices.IndexFunc(plan.nodes, func(s nodeState) bool { return s.info.Name == name }))
	}
	return plan
}

// active reports whether the node is running or due.
func (s nodeState) active() bool { return s.running || !s.due.IsZero() }

// isActive reports whether any node is running or due.
func (p *nodePlan) isActive() bool { return slices.ContainsFunc(p.nodes, nodeState.active) }

// dueActions returns the actions that are due at now.
func (p *nodePlan) dueActions(now time.Time, s situation) []nodeAction {
	var out []nodeAction
	if s.stop {
		out = p.stopTasks(now)
	}
	tasks := slices.ContainsFunc(p.nodes, func(n nodeState) bool { return n.info.Kind == wire.KindTask && n.active() })
	if !s.peers && !tasks {
		out = append(out, p.stopServices(now)...)
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		switch {
		case n.running && !n.asked.IsZero() && now.Sub(n.asked) > p.grace:
			// If the process still runs after another grace period, kill it again: a process in
			// uninterruptible sleep (state D) cannot end at once.
			n.asked = now
			out = append(out, nodeAction{i, actKill})
		case !n.running && !n.due.IsZero() && !n.due.After(now):
			n.running, n.begun, n.due = true, now, time.Time{}
			out = append(out, nodeAction{i, actStart})
		}
	}
	return out
}

// stopTasks stops all tasks.
func (p *nodePlan) stopTasks(now time.Time) []nodeAction {
	var out []nodeAction
	for i := range p.nodes {
		if p.nodes[i].info.Kind == wire.KindTask {
			out = append(out, p.stop(i, now)...)
		}
	}
	return out
}

// stopServices stops the next service in order, once the previous one has ended.
func (p *nodePlan) stopServices(now time.Time) []nodeAction {
	var out []nodeAction
	for _, i := range p.order {
		out = append(out, p.stop(i, now)...)
		if p.nodes[i].running {
			break
		}
	}
	return out
}

// stop asks a running node to stop, and cancels the start of a node that is due.
func (p *nodePlan) stop(i int, now time.Time) []nodeAction {
	n := &p.nodes[i]
	switch {
	case n.running && n.asked.IsZero():
		n.asked = now
		return []nodeAction{{i, actStop}}
	case !n.due.IsZero():
		n.due, n.ended = time.Time{}, "the program is over"
		return []nodeAction{{i, actEnd}}
	}
	return nil
}

// exited records the end of a node. how has the form "exited with status 3". It returns a line
// about it for people, "" for an expected end.
func (p *nodePlan) exited(i int, how string, failed bool, now time.Time) string {
	n := &p.nodes[i]
	n.running = false
	switch {
	case !n.asked.IsZero():
		n.ended = "it was stopped"
		return ""
	case n.info.Kind == wire.KindTask && !failed:
		n.ended = "it has finished"
		return ""
	}
	// The node has failed without a request to stop: restart it, unless its restarts are used up.
	pause, again := n.restarts.decide(i, now.Sub(n.begun))
	if !again {
		n.ended, n.failed = "it "+how, true
		if n.info.Restarts == 0 {
			return fmt.Sprintf("%s %s %s; the program has no launch.Restart for this node", n.info.Kind, n.info.Name, how)
		}
		return fmt.Sprintf("%s %s %s; all %d restarts are used up", n.info.Kind, n.info.Name, how, n.info.Restarts)
	}
	n.due = now.Add(pause)
	in := ""
	if pause > 0 {
		in = fmt.Sprintf(" in %v", pause)
	}
	return fmt.Sprintf("%s %s %s; it is started again%s (restart %d of %d)", n.info.Kind, n.info.Name, how, in, n.restarts.used(), n.restarts.limit)
}

// failures returns the names of the nodes that have failed for good.
func (p *nodePlan) failures() []string {
	var out []string
	for _, n := range p.nodes {
		if n.failed {
			out = append(out, n.info.Name)
		}
	}
	return out
}
