package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elrun/elrun/event"
)

// StatusQuorum is the exit status of a launcher, and of a peer, whose group gave up because too
// few peers were left.
const StatusQuorum = 75

// errDisagree reports that peers have different results.
var errDisagree = errors.New("peers report different results")

// doneReport is the done event of a peer.
type doneReport struct {
	index int
	done  event.Done
}

// outcome is the launcher's record of the end of the job. Its methods do not change it.
type outcome struct {
	signal   syscall.Signal // the signal that interrupted the job; 0 if none
	stopping bool           // elrun stop has asked all peers of this launcher to leave
	// exits has the ends of all processes, in the order in which they ended; dones has the results
	// that peers have reported.
	exits   []Exit
	dones   []doneReport
	gaveUp  bool   // a peer reported that the group gave up
	member  bool   // a group was formed
	mistake string // the first mistake of the program that a peer reported; empty if none
}

// ending reports whether the job was interrupted or stopped: nothing is started any more.
func (o outcome) ending() bool { return o.signal != 0 || o.stopping }

// anyFinished reports whether at least one process that was not asked to leave ended with status 0,
// and all failed processes were killed or lost with their hosts. Then the group went on without the
// failed processes.
func (o outcome) anyFinished() bool {
	well := slices.ContainsFunc(o.exits, func(e Exit) bool { return !e.failed() && !e.Asked })
	return well && !slices.ContainsFunc(o.failures(), func(e Exit) bool { return e.Signal == 0 && !e.Lost })
}

// leaveSignal returns the signal on which the agents asked their peers to leave. It is 0 if some
// peers ended without a request.
func (o outcome) leaveSignal() syscall.Signal {
	by := syscall.Signal(0)
	for _, e := range o.exits {
		switch {
		case !e.Asked:
			return 0
		case e.by != 0:
			by = e.by
		}
	}
	return by
}

// failures returns the processes that failed without a request to leave. The first one is the
// likely cause of the others.
func (o outcome) failures() []Exit {
	var out []Exit
	for _, e := range o.exits {
		if e.failed() && !e.Asked {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, compareCause)
	return out
}

// resultSurvived reports whether at least one peer with the result ended with status 0, and no peer
// with the result failed by itself. A peer fails by itself if it cannot save the result, for
// example. Killed peers are no failures here, because other peers have the same result.
func (o outcome) resultSurvived() bool {
	well := func(e Exit) bool { return e.result && !e.failed() }
	failed := func(e Exit) bool { return e.result && e.Signal == 0 && !e.Lost }
	return slices.ContainsFunc(o.exits, well) && !slices.ContainsFunc(o.failures(), failed)
}

// stopped reports whether the job was stopped: elrun stop has asked all peers, or the last member
// has left as asked, and no peer failed by itself. Peers that were killed before are no failures here, because the job went on
// without them until it was stopped.
func (o outcome) stopped() bool {
	if !o.member && !o.stopping || o.anyFinished() || slices.ContainsFunc(o.failures(), func(e Exit) bool { return e.Signal == 0 && !e.Lost }) {
		return false
	}
	if o.stopping {
		return true
	}
	var last Exit
	for _, e := range o.exits {
		if !e.out().Before(last.out()) {
			last = e
		}
	}
	return last.Asked && !last.kicked
}

// status returns the launcher's exit status, given the results of agreeDone. The cases are in the
// order of their certainty: a signal, a result, the reasons of peers, their exit statuses.
func (o outcome) status(done *event.Done, disagree error) int {
	quorum := slices.ContainsFunc(o.exits, func(e Exit) bool { return e.Code == StatusQuorum })
	switch {
	case o.signal != 0:
		return 128 + int(o.signal)
	case disagree != nil, o.mistake != "": // a peer that did not learn of the mistake may have a result, which is wrong
		return 1
	case done != nil && o.resultSurvived(): // a dead peer cost only its share of one step
		return 0
	case done != nil:
		return 1
	case o.gaveUp || quorum:
		return StatusQuorum
	case slices.ContainsFunc(o.exits, func(e Exit) bool { return e.kicked }) && !o.anyFinished():
		return 1 // the job goes on without these peers, which cannot report its result
	case o.member && o.leaveSignal() != 0:
		return 128 + int(o.leaveSignal())
	case o.member && o.anyFinished():
		return 0 // a user's own loop, which reports no result, has ended with status 0
	case o.stopped():
		return 0
	case len(o.failures()) > 0:
		return 1
	}
	return 0
}

// summary describes in one line how a job ended with status, "" if the result says it all. at is
// the step that the job has reached, as in " at step 3 of 10", or "". A mistake that a peer has
// reported is the cause of all that follows.
func (o outcome) summary(done *event.Done, status int, at string) string {
	failures := o.failures()
	// after has the failures of peers that had already reported the result.
	after := slices.DeleteFunc(slices.Clone(failures), func(e Exit) bool { return !e.result })
	switch {
	case o.mistake != "":
		return clip("the job fails by a mistake of its program: "+o.mistake, lineRoom)
	case status == 0 && done == nil && o.stopped() && !o.member:
		return "the job was stopped before all had joined: it has no result"
	case status == 0 && done == nil && o.stopped():
		return "the job was stopped" + at + ": it has no result"
	case len(failures) == 0 || !o.member:
		return ""
	case done != nil && status != 0:
		return fmt.Sprintf("the job fails: it had a result, but then %s", formatExits(after))
	case done != nil && len(after) == len(failures):
		return fmt.Sprintf("the job finished, though at its end %s", formatExits(failures))
	case status == 0:
		return fmt.Sprintf("the job finished, but before its end %s", formatExits(failures))
	}
	return fmt.Sprintf("the job did not finish; likely cause: %s", formatExits(failures[:1]))
}

// shownExits bounds the number of different ends of processes in a line.
const shownExits = 2

// formatExits describes how processes ended, in one line. Processes that ended alike are described
// together.
func formatExits(exits []Exit) string {
	groups := groupExits(exits)
	var parts []string
	more := 0
	for i, g := range groups {
		if i < shownExits {
			parts = append(parts, formatAlike(g))
		} else {
			more += len(g)
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more failed", more))
	}
	return strings.Join(parts, ", ")
}

// groupExits groups processes that ended alike. Groups and their members keep the order of exits.
func groupExits(exits []Exit) (groups [][]Exit) {
	for _, e := range exits {
		i := slices.IndexFunc(groups, func(g []Exit) bool { return g[0].String() == e.String() })
		if i < 0 {
			groups = append(groups, []Exit{e})
			continue
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// maxIndices bounds the text of formatIndices, in bytes.
const maxIndices = 60

// formatAlike describes processes that ended alike, as in "peers 0-3 exited with status 1".
func formatAlike(exits []Exit) string {
	if len(exits) == 1 {
		e := exits[0]
		return fmt.Sprintf("peer %d (pid %d) %v", e.Index, e.PID, e)
	}
	var indices []int
	for _, e := range exits {
		indices = append(indices, e.Index)
	}
	list := formatIndices(indices)
	if len(list) > maxIndices {
		return fmt.Sprintf("%d peers, as peer %d (pid %d), %v", len(exits), exits[0].Index, exits[0].PID, strings.Replace(exits[0].String(), "was ", "were ", 1))
	}
	return fmt.Sprintf("peers %s %s", list, strings.Replace(exits[0].String(), "was ", "were ", 1))
}

// formatIndices lists indices in ascending order, as in "0-3, 7".
func formatIndices(indices []int) string {
	slices.Sort(indices)
	var parts []string
	for i := 0; i < len(indices); {
		last := i
		for last+1 < len(indices) && indices[last+1] <= indices[last]+1 {
			last++
		}
		part := strconv.Itoa(indices[i])
		if indices[last] > indices[i] {
			part += "-" + strconv.Itoa(indices[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ", ")
}

// shownDigits is the number of digits of a digest in messages; they distinguish two digests.
const shownDigits = 20

// agreeDone returns the result that all peers have reported, nil if there is none, or an error
// that names two peers with different results. All peers have the same parameters, so a difference
// means a broken program or machine, and either result may be wrong. The test result of the model
// is taken from the peer with the lowest index that has one, because a user's own loop may leave
// the test to one peer.
func agreeDone(reports []doneReport) (*event.Done, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	a := reports[0]
	for _, b := range reports[1:] {
		// The hash covers all parameters, so one comparison finds any difference.
		if b.done.SHA256 != a.done.SHA256 {
			return nil, fmt.Errorf("%w: sha256 of peer %d is %s, of peer %d %s",
				errDisagree, a.index, clip(a.done.SHA256, shownDigits), b.index, clip(b.done.SHA256, shownDigits))
		}
	}
	tested := slices.DeleteFunc(slices.Clone(reports), func(r doneReport) bool { return r.done.Accuracy == nil && r.done.Loss == nil })
	if len(tested) > 0 {
		best := slices.MinFunc(tested, func(a, b doneReport) int { return cmp.Compare(a.index, b.index) })
		a.done.Accuracy, a.done.Loss = best.done.Accuracy, best.done.Loss
	}
	return &a.done, nil
}
