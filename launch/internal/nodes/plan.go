package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// Plan decides when services and tasks of a program start, restart and stop. The launcher
// carries out the actions of the plan, and reports the ends of nodes to it. It does no I/O, reads
// no clock, and is not safe for concurrent use.
//
//	due --start--> running --failed, restarts left--> due
//	                  |------failed for good, or a task is done--> ended
//	                  +--asked to stop--> ended
//
// Tasks are asked to stop when the program is stopped early. Services are asked to stop one after
// the other, when neither peers nor tasks are left.
type Plan struct {
	Nodes []State // services and tasks, in the order of their declaration
	order []int   // services in the order in which they stop
	Grace time.Duration
}

// State is one service or task.
type State struct {
	Info wire.NodeInfo
	// restarts counts the failures of the node, and gives the pause before each new start.
	restarts *restarts
	running  bool
	begun    time.Time
	// Due is the time of the next start; zero if none is due.
	Due   time.Time
	asked time.Time // time of the request to stop; zero without one
	// Ended says why the node will not be started again; "" if the node may be started.
	Ended  string
	failed bool // ended is a failure
}

// Situation is the state of the program except the nodes of the plan.
type Situation struct {
	Peers bool // some peers are running or will be started
	Stop  bool // the program has to end early
	// interrupted: a signal ends the program, and people need no lines about the ends of nodes.
	Interrupted bool
}

// Action is an action for a node.
type Action struct {
	Node int
	What actionKind
}

// actionKind is the kind of an Action.
type actionKind int

// The kinds of an Action.
const (
	ActStart actionKind = iota
	ActStop             // ask it to end
	ActKill             // kill it: it has not ended in time
	ActEnd              // report to its callers that it has ended for good
)

// NewPlan returns a plan in which all nodes are due. The program must have passed check.
func NewPlan(p wire.ProgramInfo, now time.Time, grace time.Duration) *Plan {
	plan := &Plan{Grace: grace}
	for _, n := range p.Others() {
		s := State{Info: n, restarts: NewRestarts(n.Restarts), Due: now}
		if n.Backoff > 0 {
			s.restarts.Pause = n.Backoff
		}
		plan.Nodes = append(plan.Nodes, s)
	}
	// StopOrder returns no error here, as check has passed.
	names, _ := p.StopOrder()
	for _, name := range names {
		plan.order = append(plan.order, slices.IndexFunc(plan.Nodes, func(s State) bool { return s.Info.Name == name }))
	}
	return plan
}

// active reports whether the node is running or due.
func (s State) active() bool { return s.running || !s.Due.IsZero() }

// IsActive reports whether any node is running or due.
func (p *Plan) IsActive() bool { return slices.ContainsFunc(p.Nodes, State.active) }

// DueActions returns the actions that are due at now.
func (p *Plan) DueActions(now time.Time, s Situation) []Action {
	var out []Action
	if s.Stop {
		out = p.stopTasks(now)
	}
	tasks := slices.ContainsFunc(p.Nodes, func(n State) bool { return n.Info.Kind == wire.KindTask && n.active() })
	if !s.Peers && !tasks {
		out = append(out, p.stopServices(now)...)
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch {
		case n.running && !n.asked.IsZero() && now.Sub(n.asked) > p.Grace:
			// If the process still runs after another grace period, kill it again: a process in
			// uninterruptible sleep (state D) cannot end at once.
			n.asked = now
			out = append(out, Action{i, ActKill})
		case !n.running && !n.Due.IsZero() && !n.Due.After(now):
			n.running, n.begun, n.Due = true, now, time.Time{}
			out = append(out, Action{i, ActStart})
		}
	}
	return out
}

// stopTasks stops all tasks.
func (p *Plan) stopTasks(now time.Time) []Action {
	var out []Action
	for i := range p.Nodes {
		if p.Nodes[i].Info.Kind == wire.KindTask {
			out = append(out, p.stop(i, now)...)
		}
	}
	return out
}

// stopServices stops the next service in order, once the previous one has ended.
func (p *Plan) stopServices(now time.Time) []Action {
	var out []Action
	for _, i := range p.order {
		out = append(out, p.stop(i, now)...)
		if p.Nodes[i].running {
			break
		}
	}
	return out
}

// stop asks a running node to stop, and cancels the start of a node that is due.
func (p *Plan) stop(i int, now time.Time) []Action {
	n := &p.Nodes[i]
	switch {
	case n.running && n.asked.IsZero():
		n.asked = now
		return []Action{{i, ActStop}}
	case !n.Due.IsZero():
		n.Due, n.Ended = time.Time{}, "the program is over"
		return []Action{{i, ActEnd}}
	}
	return nil
}

// Exited records the end of a node. how has the form "exited with status 3". It returns a line
// about it for people, "" for an expected end.
func (p *Plan) Exited(i int, how string, failed bool, now time.Time) string {
	n := &p.Nodes[i]
	n.running = false
	switch {
	case !n.asked.IsZero():
		n.Ended = "it was stopped"
		return ""
	case n.Info.Kind == wire.KindTask && !failed:
		n.Ended = "it has finished"
		return ""
	}
	// The node has failed without a request to stop: restart it, unless its restarts are used up.
	pause, again := n.restarts.Decide(i, now.Sub(n.begun))
	if !again {
		n.Ended, n.failed = "it "+how, true
		if n.Info.Restarts == 0 {
			return fmt.Sprintf("%s %s %s; the program has no launch.Restart for this node", n.Info.Kind, n.Info.Name, how)
		}
		return fmt.Sprintf("%s %s %s; all %d restarts are used up", n.Info.Kind, n.Info.Name, how, n.Info.Restarts)
	}
	n.Due = now.Add(pause)
	in := ""
	if pause > 0 {
		in = fmt.Sprintf(" in %v", pause)
	}
	return fmt.Sprintf("%s %s %s; it is started again%s (restart %d of %d)", n.Info.Kind, n.Info.Name, how, in, n.restarts.used(), n.restarts.limit)
}

// Failures returns the names of the nodes that have failed for good.
func (p *Plan) Failures() []string {
	var out []string
	for _, n := range p.Nodes {
		if n.failed {
			out = append(out, n.Info.Name)
		}
	}
	return out
}
