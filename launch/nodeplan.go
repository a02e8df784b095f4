package launch

import (
	"fmt"
	"slices"
	"time"
)

// nodePlan decides when services and tasks of a program start, start again and stop. It is pure
// and not safe for concurrent use.
//
//	due --start--> running --failed, restarts left--> due
//	                  |------failed for good, or a task is done--> ended
//	                  +--asked to stop--> ended
//
// Tasks are asked when the program is stopped early. Services are asked when neither peers nor
// tasks are left, one after the other.
type nodePlan struct {
	nodes []nodeState // services and tasks, in the order of their declaration
	order []int       // of services, in which they stop
	grace time.Duration
}

// nodeState is one service or task.
type nodeState struct {
	info     nodeInfo
	restarts *restarts
	running  bool
	begun    time.Time
	due      time.Time // when it is to be started; zero if it is not
	asked    time.Time // when it was asked to stop; zero if it was not
	ended    string    // why it will not come back; "" if it may
	failed   bool      // that is a failure
}

// situation is what decides about nodes besides themselves.
type situation struct {
	peers bool // some run, or will
	stop  bool // the program is to end early
}

// nodeAction is what is to be done with a node.
type nodeAction struct {
	node int
	what actionKind
}

type actionKind int

const (
	actStart actionKind = iota
	actStop             // ask it to end
	actKill             // it has not ended in time
	actEnd              // it will not come back: tell who calls it
)

// newNodePlan begins with all nodes due. The program has been checked.
func newNodePlan(p programInfo, now time.Time, grace time.Duration) *nodePlan {
	plan := &nodePlan{grace: grace}
	for _, n := range p.others() {
		s := nodeState{info: n, restarts: newRestarts(n.Restarts), due: now}
		if n.Backoff > 0 {
			s.restarts.pause = n.Backoff
		}
		plan.nodes = append(plan.nodes, s)
	}
	names, _ := p.stopOrder()
	for _, name := range names {
		plan.order = append(plan.order, slices.IndexFunc(plan.nodes, func(s nodeState) bool { return s.info.Name == name }))
	}
	return plan
}

// active reports whether a node runs or will.
func (s nodeState) active() bool { return s.running || !s.due.IsZero() }

// goesOn reports whether a node runs or will.
func (p *nodePlan) goesOn() bool { return slices.ContainsFunc(p.nodes, nodeState.active) }

// advance returns what is to be done now.
func (p *nodePlan) advance(now time.Time, s situation) []nodeAction {
	var out []nodeAction
	if s.stop {
		out = p.stopTasks(now)
	}
	tasks := slices.ContainsFunc(p.nodes, func(n nodeState) bool { return n.info.Kind == kindTask && n.active() })
	if !s.peers && !tasks {
		out = append(out, p.stopServices(now)...)
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		switch {
		case n.running && !n.asked.IsZero() && now.Sub(n.asked) > p.grace:
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
		if p.nodes[i].info.Kind == kindTask {
			out = append(out, p.stop(i, now)...)
		}
	}
	return out
}

// stopServices stops the next service in order, if the one before has ended.
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

// stop stops a node, or takes back that it is due.
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

// exited takes the end of a node, how as in "exited with status 3", and returns a line about it for
// people, "" for what was expected.
func (p *nodePlan) exited(i int, how string, failed bool, now time.Time) string {
	n := &p.nodes[i]
	n.running = false
	switch {
	case !n.asked.IsZero():
		n.ended = "it was stopped"
		return ""
	case n.info.Kind == kindTask && !failed:
		n.ended = "it has finished"
		return ""
	}
	pause, again := n.restarts.decide(i, now.Sub(n.begun))
	if !again {
		n.ended, n.failed = "it "+how, true
		if n.info.Restarts == 0 {
			return fmt.Sprintf("%s %s %s; it has no restarts", n.info.Kind, n.info.Name, how)
		}
		return fmt.Sprintf("%s %s %s; all %d restarts are used up", n.info.Kind, n.info.Name, how, n.info.Restarts)
	}
	n.due = now.Add(pause)
	in := ""
	if pause > 0 {
		in = fmt.Sprintf(" in %v", pause)
	}
	return fmt.Sprintf("%s %s %s; it is started again%s (restart %d of %d)", n.info.Kind, n.info.Name, how, in, n.info.Restarts-n.restarts.left, n.info.Restarts)
}

// failures returns the names of nodes that have failed for good.
func (p *nodePlan) failures() []string {
	var out []string
	for _, n := range p.nodes {
		if n.failed {
			out = append(out, n.info.Name)
		}
	}
	return out
}
