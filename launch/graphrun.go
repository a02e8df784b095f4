package launch

import (
	"crypto/rand"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// graphRun is a launcher's part of a program: its services and tasks. They are started when the
// first peer has described the program. The peers themselves are the peers of any job. Only the
// launcher's loop uses a graphRun.
type graphRun struct {
	info   programInfo
	digest string
	secret []byte
	plan   *nodePlan
	nodes  []nodeRun              // same order as plan.nodes
	hosts  map[string]*remoteHost // by group; nil for this host
}

// nodeRun is the process of a node.
type nodeRun struct {
	child *child // nil if it is not running
	entry serviceEntry
}

// program handles the description of a program from one of its processes, and sends the process
// the directory of services.
func (r *runner) program(from int, info programInfo) {
	c := r.process(from)
	if c == nil {
		return
	}
	if r.graph == nil {
		r.beginProgram(info)
	}
	g := r.graph
	if info.digest() != g.digest {
		c.send(message{Directory: &directoryUpdate{Refused: "it runs another version of the program, or with other arguments"}})
		return
	}
	u := directoryUpdate{Host: c.host, Secret: g.secret, Wide: r.hosts != nil && len(r.hosts.hosts) > 1}
	for i, n := range g.plan.nodes {
		if n.info.Kind == kindService {
			u.Services = append(u.Services, g.nodes[i].entry)
		}
	}
	c.send(message{Directory: &u})
	c.program = true
}

// beginProgram starts the services and tasks of a program. A launcher whose peers join a running
// job starts none, because the launcher that began the job runs them.
func (r *runner) beginProgram(info programInfo) {
	g := &graphRun{info: info, digest: info.digest(), secret: make([]byte, secretSize), hosts: make(map[string]*remoteHost),
		plan: newNodePlan(info, time.Now(), r.o.Grace)}
	_, _ = rand.Read(g.secret) // never fails
	r.graph = g
	for _, n := range g.plan.nodes {
		g.nodes = append(g.nodes, nodeRun{entry: serviceEntry{Name: n.info.Name}})
	}
	if r.o.Join {
		for i := range g.plan.nodes {
			g.plan.nodes[i].due = time.Time{}
			g.nodes[i].entry.Ended = "it belongs to the elrun that began the job, of which these peers are not"
		}
		return
	}
	r.restarts.left += info.peers().Restarts
	r.o.Restart += info.peers().Restarts
	if group, h := info.peers().Group, r.hosts.hostFor(0, r.children); group != "" {
		g.hosts[group] = h
	}
	r.runDueActions(time.Now())
}

// process returns the running child with an index, or nil.
func (r *runner) process(index int) *child {
	if index < maxPeers {
		return r.children[index]
	}
	if r.graph == nil || index-maxPeers >= len(r.graph.nodes) {
		return nil
	}
	return r.graph.nodes[index-maxPeers].child
}

// processes returns all running children: peers, services and tasks.
func (r *runner) processes() iter.Seq[*child] {
	return func(yield func(*child) bool) {
		for _, c := range r.children {
			if !yield(c) {
				return
			}
		}
		if r.graph == nil {
			return
		}
		for _, n := range r.graph.nodes {
			if n.child != nil && !yield(n.child) {
				return
			}
		}
	}
}

// runDueActions carries out the actions for the nodes of a program that are due at now.
func (r *runner) runDueActions(now time.Time) {
	if r.graph == nil {
		return
	}
	s := situation{peers: r.peersActive(), stop: r.outcome.signal != 0}
	if !s.peers && !s.stop { // without a result it is unknown when the tasks should end
		done, err := agreeDone(r.outcome.dones)
		s.stop = done == nil || r.outcome.status(done, err) != 0
	}
	for _, a := range r.graph.plan.dueActions(now, s) {
		r.perform(a, now)
	}
}

// perform carries out one action for a node.
func (r *runner) perform(a nodeAction, now time.Time) {
	n := &r.graph.nodes[a.node]
	name := n.entry.Name
	switch a.what {
	case actStart:
		if err := r.startNode(a.node); err != nil {
			r.nodeEnded(a.node, fmt.Sprintf("cannot be started: %v", cause(err)), true, now)
		}
	case actStop:
		n.child.ask(syscall.SIGTERM)
	case actKill:
		r.printf("%s still runs %v after it was asked to end; killing it", name, r.o.Grace)
		n.child.signal(syscall.SIGKILL)
	case actEnd:
		n.entry.Ended = r.graph.plan.nodes[a.node].ended
		r.tellService(a.node)
	}
}

// startNode starts the process of a node, on the host of its group if it has one.
func (r *runner) startNode(i int) error {
	g := r.graph
	info := g.plan.nodes[i].info
	env := r.environment(maxPeers+i, r.o.Peers)
	env.node = info.Name
	h := g.hosts[info.Group]
	if h == nil || h.lostNow() {
		h = r.hosts.hostFor(env.index, r.children)
		if info.Group != "" {
			g.hosts[info.Group] = h
		}
	}
	c, err := r.startChild(env, r.o.Peers, h, info.Name, nil)
	if err != nil {
		return err
	}
	g.nodes[i].child, g.nodes[i].entry = c, serviceEntry{Name: info.Name, Host: c.host}
	return nil
}

// nodeNotice handles a notice from the process of a node.
func (r *runner) nodeNotice(n notice) {
	i := n.from - maxPeers
	name := r.graph.nodes[i].entry.Name
	switch {
	case n.exit != nil:
		e := *n.exit
		e.PID = r.graph.nodes[i].child.pid()
		failed := e.failed() || r.graph.plan.nodes[i].info.Kind == kindService
		r.nodeEnded(i, fmt.Sprintf("(pid %d) %v", e.PID, e), failed, time.Now())
	case n.err != nil:
		r.printf("%s: %v", name, n.err)
	case n.msg == nil: // nodes are not suspected of being dead
	case n.msg.Program != nil:
		r.program(n.from, *n.msg.Program)
	case n.msg.Serving != nil:
		e := &r.graph.nodes[i].entry
		e.Socket, e.Addrs = n.msg.Serving.Socket, n.msg.Serving.Addrs
		r.tellService(i)
	}
}

// nodeEnded records the end of a node's process and tells the other processes.
func (r *runner) nodeEnded(i int, how string, failed bool, now time.Time) {
	g := r.graph
	r.removeSocket(g.nodes[i].entry)
	line := g.plan.exited(i, how, failed, now)
	if line != "" && r.outcome.signal == 0 {
		r.printf("%s", line)
	}
	g.nodes[i] = nodeRun{entry: serviceEntry{Name: g.nodes[i].entry.Name, Ended: g.plan.nodes[i].ended}}
	r.tellService(i)
	r.runDueActions(now)
}

// removeSocket removes the socket file of a service on this host, which remains if the service was
// killed.
func (r *runner) removeSocket(e serviceEntry) {
	if e.Socket == "" || e.Host != "" || !slices.Contains(socketDirs(), filepath.Dir(e.Socket)) {
		return
	}
	n, err := parseSocketName(strings.Replace(filepath.Base(e.Socket), ":", "/", 1))
	if err == nil && n.job == r.o.Job && n.index >= maxPeers {
		_ = os.Remove(e.Socket)
	}
}

// tellService sends the new location of a service to all processes of the program.
func (r *runner) tellService(i int) {
	g := r.graph
	if g.plan.nodes[i].info.Kind != kindService {
		return
	}
	for c := range r.processes() {
		if c.program {
			c.send(message{Directory: &directoryUpdate{Services: []serviceEntry{g.nodes[i].entry}}})
		}
	}
}

// failedNodes describes the services and tasks that have failed for good although the peers
// finished; "" if there are none.
func (r *runner) failedNodes() string {
	if r.graph == nil || len(r.graph.plan.failures()) == 0 {
		return ""
	}
	return fmt.Sprintf("the program fails: its peers finished, but %s did not", join(r.graph.plan.failures()))
}
