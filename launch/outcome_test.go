package launch

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

func TestAgreeDone(t *testing.T) {
	done := func(index int, sha string) doneReport {
		return doneReport{index, event.Done{Steps: int64(index), SHA256: sha}}
	}
	if d, err := agreeDone(nil); d != nil || err != nil {
		t.Errorf("no reports: %v, %v", d, err)
	}
	if d, err := agreeDone([]doneReport{done(2, "a"), done(0, "a")}); err != nil || d.SHA256 != "a" {
		t.Errorf("equal reports: %v, %v", d, err)
	}
	_, err := agreeDone([]doneReport{done(2, "a"), done(0, "a"), done(1, "b")})
	if !errors.Is(err, errDisagree) || !strings.Contains(err.Error(), "peer 2 is a, of peer 1 b") {
		t.Errorf("other reports: %v", err)
	}
	tested := func(index int, accuracy float64) doneReport {
		return doneReport{index, event.Done{SHA256: "a", Accuracy: &accuracy}}
	}
	d, err := agreeDone([]doneReport{done(0, "a"), tested(3, 0.25), tested(1, 0.5)})
	if err != nil || d.Accuracy == nil || *d.Accuracy != 0.5 {
		t.Errorf("tests of the model at two peers: %+v, %v", d, err)
	}
}

func TestStatusOfJob(t *testing.T) {
	done := &event.Done{}
	fine, failed, killed := Exit{}, Exit{Code: 3}, Exit{Code: -1, Signal: syscall.SIGKILL}
	asked := Exit{Asked: true, by: syscall.SIGTERM}
	left, gaveUp := Exit{Code: 1, Asked: true}, Exit{Code: StatusQuorum}
	held, unsaved, killedAfter := Exit{result: true}, Exit{Code: 1, result: true}, Exit{Code: -1, Signal: syscall.SIGKILL, result: true}
	for name, c := range map[string]struct {
		o    outcome
		done *event.Done
		err  error
		want int
	}{
		"all is well":                              {outcome{exits: []Exit{held, held}}, done, nil, 0},
		"no training":                              {outcome{exits: []Exit{fine, fine}}, nil, nil, 0},
		"deaths on the way":                        {outcome{exits: []Exit{killed, held, failed}}, done, nil, 0},
		"all fail with the result in hand":         {outcome{exits: []Exit{unsaved, unsaved}}, done, nil, 1},
		"one fails with the result in hand":        {outcome{exits: []Exit{held, unsaved}}, done, nil, 1},
		"one is killed with the result in hand":    {outcome{exits: []Exit{killedAfter, held}}, done, nil, 0},
		"all are killed with the result in hand":   {outcome{exits: []Exit{killedAfter, killedAfter}}, done, nil, 1},
		"a newcomer ends with 0, the holders fail": {outcome{exits: []Exit{fine, unsaved}}, done, nil, 1},
		"all dead":                               {outcome{exits: []Exit{killed, failed}}, nil, nil, 1},
		"one dead and no result":                 {outcome{exits: []Exit{killed, fine}}, nil, nil, 1},
		"one killed in a loop of the user's own": {outcome{exits: []Exit{killed, fine}, member: true}, nil, nil, 0},
		"one failed in a loop of the user's own": {outcome{exits: []Exit{killed, failed, fine}, member: true}, nil, nil, 1},
		"one left as asked, the last was killed": {outcome{exits: []Exit{left, killed}, member: true}, nil, nil, 1},
		"one was killed before all were stopped": {outcome{exits: []Exit{killed, left}, member: true}, nil, nil, 0},
		"the last was killed, but a leaver lived": {outcome{exits: []Exit{{at: time.Unix(2, 0), Signal: syscall.SIGKILL, Code: -1},
			{Asked: true, left: time.Unix(1, 0), at: time.Unix(3, 0)}}, member: true}, nil, nil, 1},
		"one failed before all were stopped":      {outcome{exits: []Exit{failed, left}, member: true}, nil, nil, 1},
		"all left as asked":                       {outcome{exits: []Exit{left, left}, member: true}, nil, nil, 0},
		"the last one was kicked":                 {outcome{exits: []Exit{left, {Code: 1, Asked: true, kicked: true}}, member: true}, nil, nil, 1},
		"their agents asked all to leave":         {outcome{exits: []Exit{asked, asked}, member: true}, nil, nil, 128 + int(syscall.SIGTERM)},
		"an agent asked some, the others went on": {outcome{exits: []Exit{asked, fine}, member: true}, nil, nil, 0},
		"agents asked after the end":              {outcome{exits: []Exit{asked, held}, member: true}, done, nil, 0},
		"results differ":                          {outcome{exits: []Exit{fine, fine}}, nil, errDisagree, 1},
		"a peer gave up":                          {outcome{exits: []Exit{killed, gaveUp}}, nil, nil, StatusQuorum},
		"the group gave up":                       {outcome{exits: []Exit{killed, failed}, gaveUp: true}, nil, nil, StatusQuorum},
		"gave up, but others did not":             {outcome{exits: []Exit{gaveUp, held}, gaveUp: true}, done, nil, 0},
		"asked to leave":                          {outcome{exits: []Exit{left, fine}}, nil, nil, 0},
		"interrupted":                             {outcome{exits: []Exit{killed, fine}, signal: syscall.SIGINT}, done, nil, 130},
		"a mistake, and a peer with a result":     {outcome{exits: []Exit{failed, held}, member: true, mistake: "other lengths"}, done, nil, 1},
		"a mistake, and a peer without a result":  {outcome{exits: []Exit{failed, fine}, member: true, mistake: "other lengths"}, nil, nil, 1},
	} {
		if got := c.o.status(c.done, c.err); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
}

// The last line says that a job was stopped, and at which step, only if its peers have left as asked.
func TestSummaryOfStop(t *testing.T) {
	left, killed := Exit{Code: 1, Asked: true}, Exit{PID: 7, Code: -1, Signal: syscall.SIGKILL}
	const stopped = "the job was stopped at step 3 of 10: it has no result"
	for name, c := range map[string]struct {
		exits []Exit
		done  *event.Done
		want  string
	}{
		"all left":                   {[]Exit{left, left}, nil, stopped},
		"one was killed before":      {[]Exit{killed, left}, nil, stopped},
		"the last one was killed":    {[]Exit{left, killed}, nil, "the job did not finish; likely cause: peer 0 (pid 7) was killed by signal 9 (killed)"},
		"the others have the result": {[]Exit{{result: true}, left}, &event.Done{}, ""},
		"the others ended with 0":    {[]Exit{{}, left}, nil, ""},
	} {
		o := outcome{exits: c.exits, member: true}
		if got := o.summary(c.done, o.status(c.done, nil), " at step 3 of 10"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// After elrun stop the job counts as stopped also before all had joined, and if the last peer is
// killed, unless a peer had failed by itself or had the result.
func TestOutcomeOfStop(t *testing.T) {
	left, killed, failed := Exit{Code: -1, Signal: syscall.SIGTERM, Asked: true}, Exit{Code: -1, Signal: syscall.SIGKILL}, Exit{PID: 7, Code: 3}
	for name, c := range map[string]struct {
		exits  []Exit
		done   *event.Done
		member bool
		status int
		want   string
	}{
		"before all had joined": {[]Exit{left, left}, nil, false, 0, "the job was stopped before all had joined: it has no result"},
		"after a kill":          {[]Exit{left, killed}, nil, true, 0, "the job was stopped: it has no result"},
		"after a failure":       {[]Exit{failed, left}, nil, true, 1, "the job did not finish; likely cause: peer 0 (pid 7) exited with status 3"},
		"with the result":       {[]Exit{{result: true}, left}, &event.Done{}, true, 0, ""},
	} {
		o := outcome{exits: c.exits, member: c.member, stopping: true}
		status := o.status(c.done, nil)
		if got := o.summary(c.done, status, ""); got != c.want || status != c.status {
			t.Errorf("%s: status %d, %q, want %d, %q", name, status, got, c.status, c.want)
		}
	}
}

func TestFailuresInOrder(t *testing.T) {
	at := func(index, code, s int) Exit { return Exit{Index: index, Code: code, at: time.Unix(int64(s), 0)} }
	o := outcome{exits: []Exit{at(0, 1, 5), at(1, 0, 1), at(2, 7, 3), {Index: 3, Code: 9, Asked: true}}}
	got := o.failures()
	if len(got) != 2 || got[0].Index != 2 || got[1].Index != 0 {
		t.Errorf("got %+v", got)
	}
}
