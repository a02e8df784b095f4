package launch

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/elrun/elrun/internal/event"
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
// and those that did not were killed: the others went on without them.
func (o outcome) completed() bool {
	well := slices.ContainsFunc(o.exits, func(e Exit) bool { return !e.Failed() && !e.Asked })
	return well && !slices.ContainsFunc(o.failures(), func(e Exit) bool { return e.Signal == 0 })
}

// failures returns the processes that failed of themselves, the likely cause of the others
// first: not those that were asked to leave.
func (o outcome) failures() []Exit {
	var out []Exit
	for _, e := range o.exits {
		if e.Failed() && !e.Asked {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, compareCause)
	return out
}

// status returns the launcher's exit status, given what agreeDone said.
func (o outcome) status(done *event.Done, disagree error) int {
	quorum := slices.ContainsFunc(o.exits, func(e Exit) bool { return e.Code == StatusQuorum })
	switch {
	case o.signal != 0:
		return 128 + int(o.signal)
	case disagree != nil:
		return 1
	case done != nil: // peers that died on the way cost their share of one step
		return 0
	case o.gaveUp || quorum:
		return StatusQuorum
	case o.member && o.completed():
		return 0 // a loop of the user's own, which reports no result, has gone on to its end
	case len(o.failures()) > 0:
		return 1
	}
	return 0
}

// agreeDone returns what all peers reported, nil if none did, or an error that names
// two who differ. All peers hold the same parameters, so a difference means a broken
// program or a broken machine, and either result may be the wrong one.
func agreeDone(reports []doneReport) (*event.Done, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	a := reports[0]
	for _, b := range reports[1:] {
		if b.done.SHA256 != a.done.SHA256 {
			return nil, fmt.Errorf("%w: sha256 of peer %d is %s, of peer %d %s",
				errDisagree, a.index, a.done.SHA256, b.index, b.done.SHA256)
		}
	}
	return &a.done, nil
}
