package run

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/nodes"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// graphRun is a launcher's part of a program: its services and tasks. They are started when the
// first peer has described the program. The peers themselves are the peers of any job. Only the
// launcher's loop uses a graphRun. A nil graphRun, for a job without a program, does nothing.
type graphRun struct {
	// info is the description of the program by the first process that has sent one.
	info wire.ProgramInfo
	// digest is the digest of info: the descriptions of all processes must have the same digest.
	digest string
	secret []byte // shared by the processes of the program, for calls between hosts
	plan   *nodes.Plan
	// locations has the locations of the nodes, in the order of plan.nodes.
	locations []wire.ServiceEntry
	hosts     map[string]*hosts.Host // hosts of the groups; nil for this host

	job    string
	procs  *processes
	report *say.Reporter
	// environment returns the environment of a process that is started now.
	environment func(index int) wire.Environment
	// situation returns the state of the peers and of the job.
	situation func() nodes.Situation
}

// program handles the description of a program from one of its processes. The first description
// makes the launcher start the services and tasks. Each process gets the directory of services.
func (r *runner) program(from int, info wire.ProgramInfo) {
	c := r.procs.get(from)
	if c == nil {
		return
	}
	if r.graph == nil {
		r.graph = &graphRun{info: info, digest: info.Digest(), job: r.o.Job, procs: r.procs, report: r.report, situation: r.situation,
			environment: func(index int) wire.Environment { return r.peers.environment(index, r.peers.want) },
			plan:        nodes.NewPlan(info, time.Now(), r.o.Grace), secret: make([]byte, wire.SecretSize), hosts: make(map[string]*hosts.Host)}
		_, _ = rand.Read(r.graph.secret) // never fails
		if r.o.Join {
			r.graph.leaveOut()
		} else {
			r.peers.allow(info.Peers().Restarts)
			r.graph.begin()
		}
	}
	r.graph.introduce(c, info)
}

// situation returns the state of the peers, on which the services and tasks depend.
func (r *runner) situation() nodes.Situation {
	s := nodes.Situation{Peers: r.peers.isActive(), Stop: r.outcome.ending(), Interrupted: r.outcome.ending()}
	if !s.Peers && !s.Stop { // the peers have ended: if they have no result, stop the tasks, too
		s.Stop = len(r.outcome.dones) == 0 || r.outcome.status() != 0
	}
	return s
}

// leaveOut prepares the graph of a launcher whose peers join a running job: it starts no service
// and no task, because the launcher that began the job runs them.
func (g *graphRun) leaveOut() {
	for i, n := range g.plan.Nodes {
		g.plan.Nodes[i].Due = time.Time{}
		g.locations = append(g.locations, wire.ServiceEntry{Name: n.Info.Name,
			Ended: "it belongs to the elrun that began the job; these peers were started by another one"})
	}
}

// begin starts the services and tasks. The group of the peers is on the host of the first peer.
func (g *graphRun) begin() {
	for _, n := range g.plan.Nodes {
		g.locations = append(g.locations, wire.ServiceEntry{Name: n.Info.Name})
	}
	if group := g.info.Peers().Group; group != "" {
		g.hosts[group] = g.procs.hostFor(0)
	}
	g.runDue(time.Now())
}

// introduce sends the directory of services to a process that has described its program as info. A
// process of another program gets a refusal.
func (g *graphRun) introduce(c *child, info wire.ProgramInfo) {
	// A call names its method by its number in the graph, so the caller and the service must have
	// built the same graph.
	if info.Digest() != g.digest {
		c.Send(wire.Message{Directory: &wire.DirectoryUpdate{Refused: "it runs another version of the program, or with other arguments"}})
		return
	}
	hosts := g.procs.hosts
	u := wire.DirectoryUpdate{Host: c.host, Secret: g.secret, Wide: hosts != nil && len(hosts.Hosts) > 1}
	for i, n := range g.plan.Nodes {
		if n.Info.Kind == wire.KindService {
			u.Services = append(u.Services, g.locations[i])
		}
	}
	c.Send(wire.Message{Directory: &u})
	c.program = true
}

// isActive reports whether a service or task is running or will be started. The launcher runs on
// until then.
func (g *graphRun) isActive() bool { return g != nil && g.plan.IsActive() }

// runDue carries out the actions for the nodes that are due at now.
func (g *graphRun) runDue(now time.Time) {
	if g == nil {
		return
	}
	for _, a := range g.plan.DueActions(now, g.situation()) {
		g.perform(a, now)
	}
}

// perform carries out one action for a node.
func (g *graphRun) perform(a nodes.Action, now time.Time) {
	name := g.locations[a.Node].Name
	switch a.What {
	case nodes.ActStart:
		if err := g.start(a.Node); err != nil {
			// A failed start counts as a failed run: the plan decides whether to try again.
			g.ended(a.Node, fmt.Sprintf("cannot be started: %v", say.Cause(err)), true, now)
		}
	case nodes.ActStop:
		g.child(a.Node).Ask(syscall.SIGTERM)
	case nodes.ActKill:
		g.report.Printf("%s still runs %v after it was asked to end; killing it", name, g.plan.Grace)
		g.child(a.Node).Signal(syscall.SIGKILL)
	case nodes.ActEnd:
		g.locations[a.Node].Ended = g.plan.Nodes[a.Node].Ended
		g.tell(a.Node)
	}
}

// child returns the process of a node, or nil.
func (g *graphRun) child(i int) *child { return g.procs.get(spec.MaxPeers + i) }

// start starts the process of a node, on the host of its group if it has one.
func (g *graphRun) start(i int) error {
	info := g.plan.Nodes[i].Info
	env := g.environment(spec.MaxPeers + i)
	env.Node = info.Name
	// A group moves to another host only if its host was lost.
	h := g.hosts[info.Group]
	if h == nil || h.LostNow() {
		h = g.procs.hostFor(env.Index)
		if info.Group != "" {
			g.hosts[info.Group] = h
		}
	}
	c, err := g.procs.start(env, env.Peers, h, info.Name, nil)
	if err != nil {
		return err
	}
	g.locations[i] = wire.ServiceEntry{Name: info.Name, Host: c.host}
	return nil
}

// notice handles a notice from the process of a node, except for its description of the program.
func (g *graphRun) notice(n notice) {
	i := n.from - spec.MaxPeers
	switch {
	case n.exit != nil:
		e := *n.exit
		e.PID = g.child(i).PID()
		failed := e.Failed() || g.plan.Nodes[i].Info.Kind == wire.KindService
		g.ended(i, fmt.Sprintf("(pid %d) %v", e.PID, e), failed, time.Now())
	case n.err != nil:
		g.report.Printf("%s: %v", g.locations[i].Name, n.err)
	case n.msg != nil && n.msg.Serving != nil: // a notice may have no message
		g.locations[i].Socket, g.locations[i].Addrs = n.msg.Serving.Socket, n.msg.Serving.Addrs
		g.tell(i)
	}
}

// ended records the end of a node's process and tells the other processes.
func (g *graphRun) ended(i int, how string, failed bool, now time.Time) {
	g.removeSocket(g.locations[i])
	line := g.plan.Exited(i, how, failed, now)
	if line != "" && !g.situation().Interrupted {
		g.report.Printf("%s", line)
	}
	g.procs.remove(spec.MaxPeers + i)
	g.locations[i] = wire.ServiceEntry{Name: g.locations[i].Name, Ended: g.plan.Nodes[i].Ended}
	g.tell(i)
	g.runDue(now)
}

// removeSocket removes the socket file of a service on this host. A killed service leaves the file
// behind.
func (g *graphRun) removeSocket(e wire.ServiceEntry) {
	if e.Socket == "" || e.Host != "" || !slices.Contains(ctl.SocketDirs(), filepath.Dir(e.Socket)) {
		return
	}
	n, err := ctl.ParseSocketName(strings.Replace(filepath.Base(e.Socket), ":", "/", 1))
	if err == nil && n.Job == g.job && n.Index >= spec.MaxPeers {
		_ = os.Remove(e.Socket)
	}
}

// tell sends the new location of a service to all processes of the program. It sends no locations
// of tasks, because tasks answer no calls.
func (g *graphRun) tell(i int) {
	if g.plan.Nodes[i].Info.Kind != wire.KindService {
		return
	}
	for c := range g.procs.all() {
		if c.program {
			c.Send(wire.Message{Directory: &wire.DirectoryUpdate{Services: []wire.ServiceEntry{g.locations[i]}}})
		}
	}
}

// failedNodes describes the services and tasks that have failed for good although the peers
// finished; "" if there are none.
func (g *graphRun) failedNodes() string {
	if g == nil || len(g.plan.Failures()) == 0 {
		return ""
	}
	return fmt.Sprintf("the program fails: its peers finished, but %s did not", strings.Join(g.plan.Failures(), ","))
}
