package elastic

import "testing"

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
