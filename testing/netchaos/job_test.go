package netchaos

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// settings are the choices of a test for its job.
type settings struct {
	pace    time.Duration // time for a microbatch
	batch   int           // microbatches in a step of all peers, must divide a pass; 0 means the constant microbatches
	vary    int           // ratio of the longest step to the shortest; 0 means 1
	slow    string        // local index of a slow peer
	steps   int64         // the job ends after these steps; 0 for never
	neurons int           // neurons of the hidden layer; 0 means the constant narrow
	ballast int           // memory that each peer holds, in MiB
	flags   []string      // further flags of each elrun
}

// layer returns the number of neurons in the hidden layer.
func (s settings) layer() int {
	if s.neurons == 0 {
		return narrow
	}
	return s.neurons
}

// size returns the number of microbatches in a step.
func (s settings) size() int { return cmp.Or(s.batch, microbatches) }

// env returns the environment that passes the settings to the role train.
func (s settings) env() []string {
	return []string{paceVariable + "=" + s.pace.String(), fmt.Sprintf("%s=%d", varyVariable, max(1, s.vary)),
		slowVariable + "=" + s.slow, fmt.Sprintf("%s=%d", stepsVariable, cmp.Or(s.steps, endless)),
		fmt.Sprintf("%s=%d", neuronsVariable, s.layer()), fmt.Sprintf("%s=%d", batchVariable, s.size()), fmt.Sprintf("%s=%d", ballastVariable, s.ballast), thenVariable + "=train"}
}

// job is a job with one elrun on each host of a lab.
type job struct {
	*process.Job
	lab    *lab
	dir    string
	set    settings
	elruns []*elrun // by host; nil on a host where none was started yet
}

// elrun is one of the elrun processes of a job.
type elrun struct {
	*process.Process
	*journal
	host int
}

// kill ends an elrun with SIGKILL.
func (e *elrun) kill() {
	e.torn = true
	e.Kill()
}

// newJob returns a job that has not been started. The end of the test ends its processes.
func newJob(t *testing.T, l *lab, s settings) *job {
	t.Helper()
	j := &job{lab: l, dir: folder(t), set: s, elruns: make([]*elrun, len(l.hosts))}
	t.Cleanup(func() { j.keep(t) }) // registered first, so it runs last, after the end of all processes
	j.Job = process.NewJob(t)
	return j
}

// start starts a job with n peers on the first host.
func (j *job) start(t *testing.T, n int) {
	t.Helper()
	j.elrun(t, 0, "-n", fmt.Sprint(n), "--name", j.Name)
	process.Until(t, "the first step", func() bool { return j.elruns[0].Read(t).Step > 0 })
}

// ticket returns a new ticket from elrun on a host.
func (j *job) ticket(t *testing.T, host int) string {
	t.Helper()
	return strings.TrimSpace(j.lab.hosts[host].inside(t, "", process.Elrun(), "ticket", j.Name))
}

// tryTicket is like ticket, but returns "" if the job does not run yet.
func (j *job) tryTicket(host int) string {
	out, err := exec.Command("ip", "netns", "exec", j.lab.hosts[host].namespace, process.Elrun(), "ticket", j.Name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// join starts n peers on another host.
func (j *job) join(t *testing.T, host, n int, ticket string) {
	t.Helper()
	j.elrun(t, host, "join", ticket, "-n", fmt.Sprint(n))
}

// elrun starts elrun on a host. Its program is this binary in the role train.
func (j *job) elrun(t *testing.T, host int, args ...string) {
	t.Helper()
	path := filepath.Join(j.dir, fmt.Sprintf("events-%d.jsonl", host))
	args = append(append([]string{process.Elrun()}, args...), "--events", path)
	args = append(append(args, j.set.flags...), process.Self(t))
	e := &elrun{journal: newJournal(t, path), host: host}
	e.Process = j.Start(t, on(t, j.lab.hosts[host], j.set.env(), args...))
	j.elruns[host] = e
}

// startAll starts the job with one peer on each host.
func (j *job) startAll(t *testing.T) {
	t.Helper()
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	for host := 1; host < len(j.lab.hosts); host++ {
		j.join(t, host, 1, ticket)
	}
	j.untilWhole(t, time.Time{})
}

// members returns the IDs of the peers by host if all hosts are in one view, all vote in this view,
// and each peer has reported a stable step of this view after a time. Otherwise it returns the
// condition that does not hold. Tests wait until a peer that has joined votes, because the other
// members may continue without it before.
func (j *job) members(t *testing.T, at time.Time) (ids []string, lack string) {
	t.Helper()
	var epoch uint64
	var list []string
	for _, e := range j.elruns {
		ev, v := e.Read(t).ViewEvent, e.View
		if ev.Epoch == 0 {
			return nil, fmt.Sprintf("host %d is in no view", e.host)
		}
		if epoch == 0 {
			epoch, list = ev.Epoch, v.Members
		}
		if ev.Epoch != epoch || len(v.Members) != len(j.elruns) || !slices.Contains(v.Members, ev.Peer) {
			return nil, fmt.Sprintf("host %d, peer %s, is in epoch %d with %v, host 0 in epoch %d with %v", e.host, ev.Peer, ev.Epoch, v.Members, epoch, list)
		}
		if len(v.Voters) != len(v.Members) {
			return nil, fmt.Sprintf("in epoch %d of %v only %v vote", epoch, v.Members, v.Voters)
		}
		if !slices.ContainsFunc(e.Since(at), func(s event.Event) bool { return s.Body.Name() == "step" && s.Epoch == epoch && s.Peer == ev.Peer }) {
			return nil, fmt.Sprintf("host %d has no step in epoch %d", e.host, epoch)
		}
		ids = append(ids, ev.Peer)
	}
	return ids, ""
}

// untilWhole waits until all hosts are in one view and commit steps in it.
func (j *job) untilWhole(t *testing.T, at time.Time) (ids []string) {
	t.Helper()
	lack := ""
	whole := process.Holds(t.Context(), limit, func() bool { ids, lack = j.members(t, at); return lack == "" })
	if !whole {
		t.Fatalf("the group is not whole after %v: %s", limit, lack)
	}
	return ids
}

// steps returns the latest step that is stable on at least one of the given hosts.
func (j *job) steps(t *testing.T, hosts []int) int64 {
	t.Helper()
	var last int64
	for _, h := range hosts {
		last = max(last, j.elruns[h].Read(t).Step)
	}
	return last
}

// peersOn returns the processes of the job on a host.
func (j *job) peersOn(t *testing.T, host int) []process.Peer {
	t.Helper()
	name := j.lab.hosts[host].name
	return slices.DeleteFunc(j.Peers(t), func(p process.Peer) bool { return p.Env(hostVariable) != name })
}

// peer returns the process ID of the first peer on a host.
func (j *job) peer(t *testing.T, host int) int {
	t.Helper()
	for _, p := range j.peersOn(t, host) {
		if p.Index == 0 {
			return p.PID
		}
	}
	t.Fatalf("host %d has no peer 0", host)
	return 0
}

// finish ends the job and checks its journals with a ledger.
func (j *job) finish(t *testing.T) {
	t.Helper()
	var journals []*journal
	for _, e := range j.elruns {
		if e == nil {
			continue
		}
		journals = append(journals, e.journal)
		if e.Running() {
			e.Signal(t, syscall.SIGTERM)
		}
	}
	for _, e := range j.elruns {
		if e != nil {
			e.Wait(t)
		}
	}
	j.CheckGone(t)
	newLedger(t, journals).check(t, j.set)
}

// keep writes the output of each elrun to the folder of the flag -keep.
func (j *job) keep(t *testing.T) {
	t.Helper()
	if flagged[string]("keep") == "" {
		return
	}
	for host, p := range j.Elruns {
		for name, o := range map[string]*process.Output{"stdout": &p.Out, "stderr": &p.Err} {
			if err := os.WriteFile(filepath.Join(j.dir, fmt.Sprintf("%s-%d", name, host)), []byte(o.String()), 0o666); err != nil {
				t.Error(err)
			}
		}
	}
}
