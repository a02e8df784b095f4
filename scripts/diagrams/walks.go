package main

import (
	"fmt"
	"strings"
)

// walk is a sequence of functions that handle one start, vector, gradient, death or join, in the order
// in which they run.
type walk struct {
	name  string // file name without .svg
	title string
	stops []stop
}

// stop is one function of a walk.
type stop struct {
	pkg  string // folder of the package below the module's root
	recv string // type of the receiver; "" if there is none
	name string
	does string
	in   string // the process that runs it, if the walk has several; else ""
}

// function returns the name of the stop's function, in a form that readers can search for.
func (s stop) function() string {
	if s.recv == "" {
		return s.pkg + " " + s.name
	}
	return s.pkg + " " + s.recv + "." + s.name
}

// list returns the functions of a walk in order, as docs/architecture.md lists them below the
// drawing.
func (w walk) list() string {
	var names []string
	for _, s := range w.stops {
		name := s.name
		if s.recv != "" {
			name = s.recv + "." + s.name
		}
		names = append(names, fmt.Sprintf("`%s` (%s)", name, s.pkg))
	}
	return strings.Join(names, ", ") + "."
}

// walks returns all walks.
func walks() []walk {
	return []walk{startWalk(), allReduceWalk(), gradientWalk(), deathWalk(), joinWalk()}
}

// startWalk follows "elrun -n 4 prog" from main to the first step of a loop over Steps.
func startWalk() walk {
	return walk{"start", "A start, from the command line to the first step", []stop{
		{"cmd/elrun", "", "run", "parses the command line", "elrun"},
		{"cmd/elrun", "jobFlags", "run", "makes launch.Options of the flags", "elrun"},
		{"launch/internal/run", "", "Run", "completes the options, and owns the job until it ends", "elrun"},
		{"launch/internal/job", "", "New", "decides: start the process of each seat", "elrun"},
		{"launch/internal/run", "supervisor", "spawnIn", "carries it out: the environment of the peer", "elrun"},
		{"launch/internal/proc", "", "StartLocal", "starts the process with pipes and a socket to the launcher", "elrun"},
		{"launch/internal/inpeer", "peer", "join", "launch.Init: makes an identity, listens, and opens the control socket", "peer"},
		{"launch/internal/inpeer", "Link", "Hello", "tells the launcher ID and addresses, and waits for the order", "peer"},
		{"launch/internal/job", "Job", "form", "all have said hello: fixes the members of the first view", "elrun"},
		{"launch/internal/run", "supervisor", "first", "sends each peer the members", "elrun"},
		{"elastic", "", "Join", "starts the driver of the membership in the first view", "peer"},
		{"elastic", "Group", "enter", "connects the members, and makes the communicator", "peer"},
		{"elastic", "loop", "turn", "calls the body of the loop for the first step", "peer"},
	}}
}

// allReduceWalk follows a vector from AllReduce to the wire.
func allReduceWalk() walk {
	return walk{"allreduce", "An AllReduce, from the call to the wire", []stop{
		{"collective", "", "AllReduce", "describes the call and chooses the algorithm: here the ring", ""},
		{"collective", "Comm", "begin", "gives the call its number in the communicator's sequence", ""},
		{"collective", "operation", "execute", "runs the body; an error revokes the transport at every rank", ""},
		{"ring", "", "AllReduce", "reduce-scatter, then allgather, in pipelined segments", ""},
		{"collective", "ringLink", "Send", "sends a segment to the right neighbour", ""},
		{"transport/mesh", "Transport", "Send", "finds the pair; an error revokes the view", ""},
		{"transport/mesh", "pair", "send", "waits for its turn by priority, and writes header and data", ""},
		{"transport/mesh", "stream", "write", "hands the frame to the carrier's stream: a socket", ""},
	}}
}

// gradientWalk follows a gradient.
func gradientWalk() walk {
	return walk{"gradient", "A gradient, from the backward pass to the applied update", []stop{
		{"trainer", "openStep", "contribute", "calls Model.Gradient for the microbatches of this rank's share", ""},
		{"trainer", "Batch", "Done", "the model says which elements of a gradient are complete", ""},
		{"trainer", "reduction", "ready", "starts every bucket that is complete", ""},
		{"trainer", "floatAccumulator", "reduce", "starts the non-blocking AllReduce of the bucket", ""},
		{"trainer", "try", "awaitReports", "waits for the sums of all buckets, and reduces the commit record", ""},
		{"trainer", "job", "commit", "the commit record is complete, so all contributions are in", ""},
		{"trainer", "openStep", "conclude", "turns the sums into the mean gradient", ""},
		{"trainer", "state", "commit", "calls Optimizer.Update for the parameters that were not updated early", ""},
	}}
}

// deathWalk follows the death of a member.
func deathWalk() walk {
	return walk{"death", "A death, from the broken connection to the next step", []stop{
		{"transport/mesh", "pair", "lossCause", "the stream broke (in a host pair.peerDied is first): a revocation explains it, or the peer is lost", ""},
		{"transport/mesh", "Transport", "Revoke", "ends all calls of the view here, and tells the other ranks", ""},
		{"elastic", "driver", "happened", "the carrier reports the peer as down: it is dialled again", ""},
		{"elastic", "watcher", "suspect", "nobody answers: the member is suspected", ""},
		{"elastic/member", "proposer", "choose", "proposes the next view to the voters", ""},
		{"elastic/member", "proposer", "decide", "a quorum has accepted the view", ""},
		{"elastic", "Group", "next", "connects the members of the next view, and brings all to one step", ""},
		{"trainer", "job", "enter", "all tell which microbatches they hold; the rest is divided anew", ""},
	}}
}

// joinWalk follows the join of a peer.
func joinWalk() walk {
	return walk{"join", "A join, from the ticket to the first share", []stop{
		{"launch/internal/inpeer", "identity", "findAdmission", "a ticket gets the peer past the gate of a member", ""},
		{"elastic", "follower", "run", "offers itself to the members", ""},
		{"elastic", "requestServer", "consider", "compares settings, and asks the judge whether steps get shorter", ""},
		{"elastic", "admitter", "approve", "an approved peer is proposed for the next view", ""},
		{"elastic", "joiner", "copyAndFollow", "copies the state from several members while they go on", ""},
		{"elastic/member", "proposer", "decide", "a quorum has accepted the view with the newcomer", ""},
		{"elastic", "heldState", "synchronize", "brings the newcomer to the committed step", ""},
		{"trainer", "job", "enter", "the newcomer gets its first share", ""},
	}}
}
