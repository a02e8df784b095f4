package trainer

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/optim"
)

// A job commits its steps in sessions, and reports each step when it is stable. This job has no group. Its session ends after
// each step, as at a change of members. In the next session the job continues with its state. The job finishes once.
func TestAJobGoesFromSessionToSession(t *testing.T) {
	var steps []int64
	var results []Result
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Steps: 2, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.5),
		Hooks: Hooks{OnStep: func(r StepReport) { steps = append(steps, r.Step) }, Done: func(r Result) { results = append(results, r) }}}
	j, err := newJob(nil, ModelOf(ramp{paramsOf(2, 3)}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.guard.start(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	defer j.guard.stop()
	for step := int64(1); step <= 2; step++ {
		err := j.session(t.Context(), sessionOf(t, "me", uint64(step)))
		if err == nil || !strings.Contains(err.Error(), "after the commit of step ") || j.state.committed() != step || len(results) > 0 {
			t.Fatalf("step %d of session %d: error %v, results %v", j.state.committed(), step, err, results)
		}
		if int64(len(steps)) != step-1 { // the next commit record makes the committed step stable
			t.Errorf("steps %v are reported after step %d", steps, step)
		}
	}
	if !j.finished() {
		t.Fatal("the job does not know that it has come to its end")
	}
	if err := j.session(t.Context(), sessionOf(t, "me", 3)); err != nil || len(results) != 1 || results[0].Steps != 2 || results[0].Peers != 1 {
		t.Errorf("error %v, results %+v", err, results)
	}
	if len(steps) != 2 || steps[0] != 1 || steps[1] != 2 {
		t.Errorf("reported steps %v", steps)
	}
}

// If a copy of another peer's state moves a peer ahead, the moved peer reports its last step only if it still has the identity under
// which it contributed. A job without a group has no identity.
func TestSupersededUnderAnotherIdentity(t *testing.T) {
	reported := 0
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Steps: 5, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.5)}
	j, err := newJob(nil, ModelOf(ramp{paramsOf(2, 3)}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.reporter.emit = func(uint64, int64, event.Body) { reported++ }
	j.state.last = outcome{Step: 1, Samples: 20, Shares: []share{{"me", [][2]int{{0, 4}}}, {"", [][2]int{}}}}
	for owner, want := range map[elastic.ID]int{"me": 0, "": 1} {
		reported, j.reporter.reported, j.step.own.owner = 0, 0, owner
		if j.superseded(2, false); reported != want {
			t.Errorf("owner %q: %d reports, want %d", owner, reported, want)
		}
	}
}
