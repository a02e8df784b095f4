package run

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/spec"
)

func TestAgreeDone(t *testing.T) {
	done := func(index int, sha string) DoneReport {
		return DoneReport{index, event.Done{Steps: int64(index), SHA256: sha}}
	}
	if d, err := AgreeDone(nil); d != nil || err != nil {
		t.Errorf("no reports: %v, %v", d, err)
	}
	if d, err := AgreeDone([]DoneReport{done(2, "a"), done(0, "a")}); err != nil || d.SHA256 != "a" {
		t.Errorf("equal reports: %v, %v", d, err)
	}
	_, err := AgreeDone([]DoneReport{done(2, "a"), done(0, "a"), done(1, "b")})
	if !errors.Is(err, errDisagree) || !strings.Contains(err.Error(), "peer 2 is a, of peer 1 b") {
		t.Errorf("other reports: %v", err)
	}
	tested := func(index int, accuracy float64) DoneReport {
		return DoneReport{index, event.Done{SHA256: "a", Accuracy: &accuracy}}
	}
	d, err := AgreeDone([]DoneReport{done(0, "a"), tested(3, 0.25), tested(1, 0.5)})
	if err != nil || d.Accuracy == nil || *d.Accuracy != 0.5 {
		t.Errorf("tests of the model at two peers: %+v, %v", d, err)
	}
}

// The end of the job decides, except after a signal to the launcher or to its agents, and after a mistake.
func TestStatusOfJob(t *testing.T) {
	over := func(status int, v job.Verdict) *job.Over { return &job.Over{Status: status, Verdict: v, Cause: -1} }
	asked := spec.Exit{Asked: true, By: syscall.SIGTERM}
	for name, c := range map[string]struct {
		o    outcome
		want int
	}{
		"finished":                                {outcome{over: over(0, job.JobFinished)}, 0},
		"gave up":                                 {outcome{over: over(spec.StatusQuorum, job.JobGaveUp)}, spec.StatusQuorum},
		"interrupted":                             {outcome{over: over(130, job.JobInterrupted), signal: syscall.SIGINT}, 130},
		"a signal after the end":                  {outcome{over: over(0, job.JobFinished), signal: syscall.SIGINT}, 130},
		"a mistake that is found after the end":   {outcome{over: over(0, job.JobFinished), mistake: "other lengths"}, 1},
		"their agents asked all to leave":         {outcome{over: over(0, job.JobStopped), exits: []spec.Exit{asked, asked}, member: true}, 143},
		"an agent asked some, the others went on": {outcome{over: over(0, job.JobStopped), exits: []spec.Exit{asked, {}}, member: true}, 0},
		"agents asked after the end":              {outcome{over: over(0, job.JobFinished), exits: []spec.Exit{asked, asked}, member: true}, 0},
	} {
		if got := c.o.status(); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
}

// The last line says what has become of the job, and who is the cause.
func TestSummary(t *testing.T) {
	killed, failed := spec.Exit{Index: 1, PID: 7, Code: -1, Signal: syscall.SIGKILL}, spec.Exit{Index: 2, PID: 8, Code: 3}
	unsaved := spec.Exit{Index: 2, PID: 8, Code: 3, Result: true}
	for name, c := range map[string]struct {
		over    job.Over
		exits   []spec.Exit
		mistake string
		want    string
	}{
		"finished":                 {job.Over{Verdict: job.JobFinished, Cause: -1}, []spec.Exit{{}}, "", ""},
		"finished after a death":   {job.Over{Verdict: job.JobFinished, Cause: -1}, []spec.Exit{killed, {}}, "", "the job finished, but before its end peer 1 (pid 7) was killed by signal 9 (killed)"},
		"finished before a death":  {job.Over{Verdict: job.JobFinished, Cause: -1}, []spec.Exit{unsaved, {}}, "", "the job finished, though at its end peer 2 (pid 8) exited with status 3"},
		"stopped":                  {job.Over{Verdict: job.JobStopped, Cause: -1}, []spec.Exit{killed, {Asked: true}}, "", "the job was stopped at step 3 of 10: it has no result"},
		"failed":                   {job.Over{Verdict: job.JobFailed, Cause: 2}, []spec.Exit{killed, failed}, "", "the job did not finish; likely cause: peer 2 (pid 8) exited with status 3"},
		"gave up":                  {job.Over{Verdict: job.JobGaveUp, Cause: 1}, []spec.Exit{killed, failed}, "", "the job did not finish; likely cause: peer 1 (pid 7) was killed by signal 9 (killed)"},
		"failed without a cause":   {job.Over{Verdict: job.JobFailed, Cause: -1}, []spec.Exit{failed}, "", "the job did not finish; likely cause: peer 2 (pid 8) exited with status 3"},
		"spoiled":                  {job.Over{Verdict: job.JobSpoiled, Cause: 2}, []spec.Exit{killed, unsaved}, "", "the job fails: it had a result, but then peer 2 (pid 8) exited with status 3"},
		"a mistake hides the rest": {job.Over{Verdict: job.JobFailed, Cause: 2}, []spec.Exit{failed}, "other lengths", "the job fails by a mistake of its program: other lengths"},
		"without a group":          {job.Over{Verdict: job.JobGroupless, Cause: -1}, []spec.Exit{{}}, "", ""},
		"without the end of a loop": {job.Over{Verdict: job.JobUnclosed, Cause: -1}, []spec.Exit{{}}, "",
			"the job did not finish: its peers have ended at step 3 of 10 without the end of their loops; end a loop by Turn.Stop, and close the group"},
	} {
		o := outcome{exits: c.exits, member: true, over: &c.over, mistake: c.mistake}
		if got := o.summary(" at step 3 of 10"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// After elrun stop the line says so also before all had joined.
func TestSummaryBeforeTheFirstView(t *testing.T) {
	o := outcome{exits: []spec.Exit{{Code: -1, Signal: syscall.SIGTERM, Asked: true}}, stopping: true, over: &job.Over{Verdict: job.JobStopped}}
	if got := o.summary(" at step 0 of 10"); got != "the job was stopped before all had joined: it has no result" {
		t.Errorf("got %q", got)
	}
}

// Newcomers were refused by a member, or found none.
func TestFormatRefusal(t *testing.T) {
	for reason, want := range map[string]string{
		"no further view: refused by abc: batch is 7": "the newcomers were refused: batch is 7",
		"no further view: the job has ended":          "the newcomers were not let in: the job has ended",
		"nobody listens there":                        "the newcomers were not let in: nobody listens there",
	} {
		if got := (outcome{refused: reason}).formatRefusal(); got != want {
			t.Errorf("%q: %q, want %q", reason, got, want)
		}
	}
}

// A peer that waits learns why there is no job to join.
func TestFormatAbort(t *testing.T) {
	o := outcome{exits: []spec.Exit{{Index: 1, Code: 3}}, mistake: "other lengths"}
	for want, a := range map[string]job.Abort{
		"peer 1 exited with status 3 before all had joined":        {Why: job.EndedEarly, Who: 1},
		"peer 2 could not be started":                              {Why: job.EndedEarly, Who: 2},
		"the job fails by a mistake of its program: other lengths": {Why: job.Mistaken},
		"the job is ending":                                        {Why: job.Ending},
	} {
		if got := o.formatAbort(a); got != want {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
}
