package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/elrun/elrun/event"
)

// StatusQuorum is the exit status of a launcher, and of a peer, whose group gave up
// because too few peers were left.
const StatusQuorum = 75

// errDisagree: peers report different results.
var errDisagree = errors.New("peers report different results")

// doneReport is a peer's done event.
type doneReport struct {
	index int
	done  event.Done
}

// outcome is what a launcher has seen at the end of its peers. Its methods are pure.
type outcome struct {
	signal syscall.Signal // that interrupted the job; 0 if none
	exits  []Exit
	dones  []doneReport
	gaveUp bool // a peer reported that the group gave up
	member bool // there was a group
}

// completed reports whether at least one process ended well that was not asked to leave,
// and those that did not were killed or lost with their hosts: the others went on without
// them.
func (o outcome) completed() bool {
	well := slices.ContainsFunc(o.exits, func(e Exit) bool { return !e.failed() && !e.Asked })
	return well && !slices.ContainsFunc(o.failures(), func(e Exit) bool { return e.Signal == 0 && !e.Lost })
}

// asked returns the signal to agents by which all peers were asked to leave that were there at
// the end, 0 if others ended without that.
func (o outcome) asked() syscall.Signal {
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

// failures returns the processes that failed of themselves, the likely cause of the others
// first: not those that were asked to leave.
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

// kept reports whether the result outlived the peers that held it at the end: at least one
// of them ended with 0, and none failed of itself, as one does that cannot save it. One that
// was killed leaves it to the others.
func (o outcome) kept() bool {
	well := func(e Exit) bool { return e.result && !e.failed() }
	failed := func(e Exit) bool { return e.result && e.Signal == 0 && !e.Lost }
	return slices.ContainsFunc(o.exits, well) && !slices.ContainsFunc(o.failures(), failed)
}

// status returns the launcher's exit status, given what agreeDone said.
func (o outcome) status(done *event.Done, disagree error) int {
	quorum := slices.ContainsFunc(o.exits, func(e Exit) bool { return e.Code == StatusQuorum })
	switch {
	case o.signal != 0:
		return 128 + int(o.signal)
	case disagree != nil:
		return 1
	case done != nil && o.kept(): // peers that died on the way cost their share of one step
		return 0
	case done != nil:
		return 1
	case o.gaveUp || quorum:
		return StatusQuorum
	case slices.ContainsFunc(o.exits, func(e Exit) bool { return e.kicked }) && !o.completed():
		return 1 // what goes on without these peers is not theirs to tell
	case o.member && o.asked() != 0:
		return 128 + int(o.asked())
	case o.member && o.completed():
		return 0 // a loop of the user's own, which reports no result, has gone on to its end
	case len(o.failures()) > 0:
		return 1
	}
	return 0
}

// summary says in a line how the job fared that ends with this status, "" where nobody
// failed.
func (o outcome) summary(done *event.Done, status int) string {
	failures := o.failures()
	after := slices.DeleteFunc(slices.Clone(failures), func(e Exit) bool { return !e.result })
	switch {
	case len(failures) == 0 || !o.member:
		return ""
	case done != nil && status != 0:
		return fmt.Sprintf("the job fails: its result was there, but then %s", wordExits(after))
	case done != nil && len(after) == len(failures):
		return fmt.Sprintf("the job finished, though at its end %s", wordExits(failures))
	case status == 0:
		return fmt.Sprintf("the job finished, though on the way %s", wordExits(failures))
	}
	return fmt.Sprintf("the job did not finish; first %s", wordExits(failures[:1]))
}

// shownExits bounds how many processes a line names.
const shownExits = 2

// wordExits lists how processes ended.
func wordExits(exits []Exit) string {
	var parts []string
	for _, e := range exits[:min(shownExits, len(exits))] {
		parts = append(parts, fmt.Sprintf("peer %d (pid %d) %v", e.Index, e.PID, e))
	}
	if more := len(exits) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more failed", more))
	}
	return strings.Join(parts, ", ")
}

// shownDigits is how much of a digest tells it from another one.
const shownDigits = 20

// agreeDone returns what all peers reported, nil if none did, or an error that names
// two who differ. All peers hold the same parameters, so a difference means a broken
// program or a broken machine, and either result may be the wrong one. A test of the model
// counts that the peer with the lowest index has reported: a loop of the user's own may leave
// it to one peer.
func agreeDone(reports []doneReport) (*event.Done, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	a := reports[0]
	for _, b := range reports[1:] {
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
