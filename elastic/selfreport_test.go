package elastic

import (
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective"
)

// Only the first reason to leave counts. notBusy withdraws a reason only if that reason is the
// present one.
func TestSelfReport(t *testing.T) {
	var end, asked selfReport
	end.leave(true)
	asked.leave(false)
	asked.leave(true)
	if got := end.get(); !got.Leaving || !got.Ended {
		t.Errorf("at the end: %+v", got)
	}
	if got := asked.get(); !got.Leaving || got.Ended {
		t.Errorf("asked to leave before the end: %+v", got)
	}
	var r selfReport
	r.commit(-1)
	if got := r.committed(); got != 0 {
		t.Errorf("a void state counts as step %d", got)
	}
	r.commit(4)
	r.enter(3)
	r.busy("evaluating")
	r.notBusy(bodyBusy)
	if got := r.get(); r.committed() != 4 || got.Entered != 3 || got.Busy != "evaluating" {
		t.Errorf("got %+v", got)
	}
	r.notBusy("evaluating")
	if got := r.get(); got.Busy != "" {
		t.Errorf("still busy: %+v", got)
	}
}

// The text for the other members describes the mistake, without the calls that have passed it on.
func TestTextOfAMistake(t *testing.T) {
	waits := &collective.DeadlockError{Waits: []collective.DeadlockWait{{Rank: 0, Sends: true}, {Rank: 1}}}
	for want, err := range map[string]error{
		"wrong":                   mistakef("%w", fmt.Errorf("wrong")),
		"the cause":               &collective.AbortError{Rank: 3, Cause: "the cause", Mistake: true},
		waits.Error():             waits,
		"elastic: bad argument 3": fmt.Errorf("bad argument 3"),
	} {
		if got := textOf(fmt.Errorf("elastic: %w", err)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
