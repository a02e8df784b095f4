package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// errDisagree reports that peers have different results.
var errDisagree = errors.New("peers report different results")

// DoneReport is the done event of a peer.
type DoneReport struct {
	Index int
	Done  event.Done
}

// outcome is the launcher's record of the end of the job. Its methods do not change it.
type outcome struct {
	signal   syscall.Signal // the signal that interrupted the job; 0 if none
	stopping bool           // elrun stop has asked all peers of this launcher to leave
	// exits has the ends of all processes, in the order in which they ended; dones has the results
	// that peers have reported.
	exits []spec.Exit
	dones []DoneReport
	// leading reports whether this launcher led the job in the epoch of the first of dones. Members that
	// close their groups leave later views, which may have another first member.
	leading bool
	member  bool      // a group was formed
	mistake string    // the first mistake of the program that was reported; empty if none
	finders []int     // the peers that have found it, and not learned of it from others
	refused string    // why the job has refused a newcomer; empty if it has refused none
	over    *job.Over // how the life of the job has ended; nil while processes run
}

// ending reports whether the job was interrupted or stopped: nothing is started any more.
func (o outcome) ending() bool { return o.signal != 0 || o.stopping }

// failures returns the processes that failed without a request to leave, in the order of their ends.
func (o outcome) failures() (out []spec.Exit) {
	for _, e := range o.exits {
		if e.Failed() && !e.Asked {
			out = append(out, e)
		}
	}
	return out
}

// leaveSignal returns the signal on which the agents asked their peers to leave. It is 0 if some
// peers ended without a request.
func (o outcome) leaveSignal() syscall.Signal {
	by := syscall.Signal(0)
	for _, e := range o.exits {
		switch {
		case !e.Asked:
			return 0
		case e.By != 0:
			by = e.By
		}
	}
	return by
}

// end returns what has become of the job. A mistake may be found after the last process has ended.
func (o outcome) end() job.Verdict {
	switch {
	case o.signal != 0:
		return job.JobInterrupted
	case o.mistake != "":
		return job.JobMistaken
	}
	return o.over.Verdict
}

// status returns the launcher's exit status.
func (o outcome) status() int {
	switch by := o.leaveSignal(); {
	case o.signal != 0:
		return 128 + int(o.signal)
	case o.mistake != "":
		return 1
	case o.over.Verdict == job.JobStopped && o.member && by != 0:
		return 128 + int(by)
	}
	return o.over.Status
}

// cause returns the end of the process that is the cause of the others, if it is known.
func (o outcome) cause() (spec.Exit, bool) {
	for _, e := range slices.Backward(o.exits) {
		if e.Index == o.over.Cause {
			return e, true
		}
	}
	return spec.Exit{}, false
}

// summary describes in one line how a job ended, "" if the result says it all. at is the step that the
// job has reached, as in " at step 3 of 10", or "".
func (o outcome) summary(at string) string {
	failures := o.failures()
	// after has the failures of peers that had already reported the result.
	after := slices.DeleteFunc(slices.Clone(failures), func(e spec.Exit) bool { return !e.Result })
	switch o.end() {
	case job.JobInterrupted, job.JobGroupless: // nobody needs a reason
		return ""
	case job.JobMistaken:
		return wire.Clip("the job fails by a mistake of its program: "+o.formatMistake(), say.LineRoom)
	case job.JobDisagrees:
		_, err := AgreeDone(o.dones)
		return fmt.Sprint(err)
	case job.JobSpoiled:
		return "the job fails: it had a result, but then " + say.FormatExits(after)
	case job.JobFinished:
		switch {
		case len(failures) == 0:
			return ""
		case len(after) == len(failures):
			return "the job finished, though at its end " + say.FormatExits(failures)
		}
		return "the job finished, but before its end " + say.FormatExits(failures)
	case job.JobStopped:
		if !o.member {
			return "the job was stopped before all had joined: it has no result"
		}
		return "the job was stopped" + at + ": it has no result"
	case job.JobPutOut:
		return "all peers of this elrun were put out of the job" + at + "; other members may go on"
	case job.JobUnclosed:
		return "the job did not finish: its peers have ended" + at + " without the end of their loops; end a loop by Turn.Stop, and close the group"
	case job.JobRefused:
		return wire.Clip(o.formatRefusal(), say.LineRoom)
	}
	switch e, ok := o.cause(); {
	case ok:
		return "the job did not finish; likely cause: " + say.FormatExits([]spec.Exit{e})
	case len(failures) > 0:
		return "the job did not finish; likely cause: " + say.FormatExits(failures[:1])
	}
	return ""
}

// formatRefusal says why the newcomers are not members.
func (o outcome) formatRefusal() string {
	reason := strings.TrimPrefix(o.refused, elastic.ErrNoView.Error()+": ")
	if by, why, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(by, "refused by ") {
		return "the newcomers were refused: " + why
	}
	return "the newcomers were not let in: " + reason
}

// formatMistake names the peer that has found the mistake, if it is one, and the text names nobody.
func (o outcome) formatMistake() string {
	if len(o.finders) != 1 || strings.Contains(o.mistake, "peer ") || strings.Contains(o.mistake, "rank ") {
		return o.mistake
	}
	return fmt.Sprintf("peer %d: %s", o.finders[0], o.mistake)
}

// formatAbort says why there is no job to join.
func (o outcome) formatAbort(a job.Abort) string {
	switch a.Why {
	case job.EndedEarly:
		for _, e := range slices.Backward(o.exits) {
			if e.Index == a.Who {
				return fmt.Sprintf("peer %d %v before all had joined", e.Index, e)
			}
		}
		return fmt.Sprintf("peer %d could not be started", a.Who)
	case job.Mistaken:
		return wire.Clip("the job fails by a mistake of its program: "+o.mistake, wire.MaxNote)
	}
	if o.stopping {
		return "elrun stop has ended the job"
	}
	return "the job is ending"
}

// shownDigits is the number of digits of a digest in messages; they distinguish two digests.
const shownDigits = 20

// AgreeDone returns the result that all peers have reported, nil if there is none, or an error
// that names two peers with different results. All peers have the same parameters, so a difference
// means a broken program or machine, and either result may be wrong. The test result of the model
// is taken from the peer with the lowest index that has one, because a user's own loop may leave
// the test to one peer.
func AgreeDone(reports []DoneReport) (*event.Done, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	a := reports[0]
	for _, b := range reports[1:] {
		// The hash covers all parameters, so one comparison finds any difference.
		switch {
		case a.Done.SHA256 == "": // this peer has none to compare
			a = b
		case b.Done.SHA256 != "" && b.Done.SHA256 != a.Done.SHA256:
			return nil, fmt.Errorf("%w: sha256 of peer %d is %s, of peer %d %s",
				errDisagree, a.Index, wire.Clip(a.Done.SHA256, shownDigits), b.Index, wire.Clip(b.Done.SHA256, shownDigits))
		}
	}
	tested := slices.DeleteFunc(slices.Clone(reports), func(r DoneReport) bool { return r.Done.Accuracy == nil && r.Done.Loss == nil })
	if len(tested) > 0 {
		best := slices.MinFunc(tested, func(a, b DoneReport) int { return cmp.Compare(a.Index, b.Index) })
		a.Done.Accuracy, a.Done.Loss = best.Done.Accuracy, best.Done.Loss
	}
	return &a.Done, nil
}

// recordEnd records how the job ended, on this host and on the hosts of its peers. reason is one
// line, or "".
func (r *runner) recordEnd(status int, done *event.Done, reason string) {
	if !r.outcome.member { // no peer was ever a member
		return
	}
	s := spec.Status{Job: r.o.Job, Log: r.o.Output.EventsPath, Step: r.report.Progress.Step, Of: r.report.Progress.Of, Ended: &spec.Ended{Began: r.begun, At: time.Now(),
		Status: status, Outcome: ctl.FormatOutcome(status, r.outcome.signal, r.outcome.end() == job.JobStopped), Reason: reason}}
	if done != nil {
		s.Step, s.Ended.Result = max(s.Step, done.Steps), done.Line()
	}
	_ = ctl.WriteEnded(s) // ignore errors: a container without a folder for records needs none
	r.procs.hosts.Broadcast(wire.Message{Order: wire.Order{Ended: &s}})
}
