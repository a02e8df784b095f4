package run

import (
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/metrics"
	"github.com/elrun/elrun/launch/spec"
)

// runner is a job in progress. The goroutine of Run owns it:
//
//	spawn -> loop: notices of the processes, signals, time -> finish
//
// The loop never waits for the console, so that signals work while output is stuck. The methods of
// runner react to notices (events.go) and signals. Its parts hold the state:
//
//	procs       the processes that run, and the hosts on which they do
//	peers       carries out the decisions about the life of the job
//	figures     what other launchers know of their peers, while somebody watches
//	graph       the services and tasks of a Program
//	roster      the IDs of the peers, and the state of the group
//	report      lines and the progress line for people
//	membership, stalls, JoinQueue, failures
//	            which lines people get about members, stalls, newcomers and failures
//	outcome     how the processes ended, and the exit status that follows
//	discovery   the announcement of the job, and lookups
type runner struct {
	o     *spec.Options // as completed by complete; read only
	begun time.Time

	procs  *processes
	peers  *supervisor
	graph  *graphRun // nil unless the peers belong to a Program
	report *say.Reporter

	// State from the peers' reports, kept by parts without I/O.
	roster     *roster
	membership *say.MembershipLog
	stalls     say.Stalls
	joinQueue  say.JoinQueue
	figures    figures
	failures   say.FailureReport
	outcome    outcome

	discovery discoveryState
	calls     calls // from the control socket of this launcher
	metrics   *metrics.Server
	trainJob  *trainJob
	remains   []flight.Record // of failed peers, at most maxRemains, the latest last

	interruption interruption // meaningful once outcome.signal is set
	looked       time.Time    // when it last looked which processes of this host are stopped
}

const (
	tickPeriod = 100 * time.Millisecond // interval of tick
	// consolePatience is how long the launcher waits, at the end of an interrupted job, for a
	// console whose output blocks.
	consolePatience = 2 * time.Second
)

// newRunner returns the runner of a job that has not been started. path is the path of the program.
// The runner owns the processes that it starts: all of them have ended when loop returns.
func newRunner(o spec.Options, path string, order wire.StartOrder) *runner {
	group := newRoster(order)
	r := &runner{o: &o, begun: time.Now(), calls: newCalls(), roster: group, report: say.NewReporter(&o.Output, group.isLeading)}
	r.membership = say.NewMembershipLog(o.Membership.MinPeers, group.describe, func(id string) bool { return group.index(id) >= 0 })
	if len(o.Remote.Hosts) == 0 {
		r.membership.Load, r.stalls.Load = say.HostOverload, say.HostOverload
	}
	r.procs = newProcesses(&o, path, r.report.Console)
	r.peers = newSupervisor(&o, r.procs, r.report, group)
	r.figures.send, r.figures.roster = r.peers.send, group
	r.peers.joinQueue, r.peers.membership, r.peers.outcome = &r.joinQueue, r.membership, &r.outcome
	return r
}

// loop runs until all processes have ended and no restart is pending.
func (r *runner) loop(ctx context.Context) {
	tick := time.NewTicker(tickPeriod)
	defer tick.Stop()
	end := ctx.Done()
	for r.isActive() {
		select {
		case n := <-r.procs.notices:
			r.notice(n)
		case a := <-r.procs.hosts.Results():
			r.hostConnected(a)
		case found := <-r.discovery.found:
			r.onDiscovered(found)
		case f := <-r.calls.due:
			f()
		case o := <-r.peers.herald.results:
			r.peers.announced(o)
		case s := <-r.o.Signals:
			r.signalled(s, time.Now())
		case <-end:
			end = nil
			r.cancel(context.Cause(ctx), time.Now())
		case <-r.report.Console.Broken: // nobody reads the output: end as a pipeline does
			if r.outcome.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE, time.Now())
			}
		case e := <-r.report.Console.Notes:
			r.peers.journal.add(e)
		case now := <-tick.C:
			r.tick(now)
		}
	}
	r.procs.work.Wait()
	r.peers.judge(time.Now())
	_, _ = ctl.List() // removes the sockets of killed peers
	r.report.Lines(r.failures.Take(r.isWaiting()))
	r.report.Lines(r.stalls.Due(time.Time{}, r.peers.want, r.roster.describe))
	r.report.Shared(r.membership.Finish())
	r.peers.journal.records.finish(r.hookPatience(), r.calls.due)
}

// isActive reports whether a process is running or will be started.
func (r *runner) isActive() bool { return r.peers.isActive() || r.graph.isActive() }

// tick does everything that is due at now.
func (r *runner) tick(now time.Time) {
	r.report.Lines(r.failures.Due(now, r.isWaiting()))
	r.procs.hosts.Beat(now)
	r.answerOverdue(now)
	r.peers.judge(now)
	r.report.Lines(r.stalls.Due(now, r.peers.want, r.roster.describe))
	r.report.Shared(r.membership.Due(now))
	if !r.outcome.ending() {
		r.report.Lines(r.joinQueue.Due(now))
	}
	if now.Sub(r.looked) >= proc.LookPeriod {
		r.looked = now
		r.lookAll()
	}
	r.figures.tick(now)
	r.peers.record(job.Tick{})
	r.graph.runDue(now)
	r.report.ShowProgress(now)
}

// isWaiting reports whether programs run that do not form a group yet.
func (r *runner) isWaiting() bool {
	return !r.o.Join && r.peers.generation == 0 && len(r.procs.peers) > 0
}

// finish determines the result and prints the job's last line.
func (r *runner) finish(ctx context.Context) spec.Result {
	slices.SortFunc(r.outcome.exits, func(a, b spec.Exit) int { return a.At.Compare(b.At) })
	done, err := AgreeDone(r.outcome.dones)
	last := ""
	// If the peers disagree about the result, the job fails; otherwise the result is the last line
	// of the output.
	if err == nil && done != nil && r.outcome.leading && r.outcome.mistake == "" {
		last = printable.Line(done.Line())
	}
	r.report.Shared(r.goodput())
	status := r.outcome.status()
	reason := r.outcome.summary(r.report.Progress.Position())
	if reason != "" {
		r.report.Printf("%s", reason)
	}
	if failed := r.graph.failedNodes(); failed != "" && status == 0 {
		status, reason = 1, failed
		r.report.Printf("%s", failed)
	}
	r.peers.journal.drain(r.report.Console.Notes)
	// Record the end before the console is closed, because closing may take long.
	r.recordEnd(status, done, reason)
	if unwritten := r.closeConsole(ctx, last); unwritten != nil && status == 0 {
		status = 1
	}
	if r.outcome.signal != 0 { // a signal may have come while the console was stuck
		status = r.outcome.status()
	}
	return spec.Result{Job: r.o.Job, Exits: r.outcome.exits, Done: done, Status: status}
}

// leastWall is the time in milliseconds of a job for which a line about its goodput is worth while.
const leastWall = 1000

// goodput returns the line about what the time of the peers was used for, if they have committed steps.
func (r *runner) goodput() []string {
	s := r.peers.journal.model.Snapshot()
	if line := s.Goodput.Line(); line != "" && s.Step > 0 && s.Goodput.WallMS >= leastWall {
		return []string{line}
	}
	return nil
}

// closeConsole ends the console. Like any program it waits for a stopped terminal or a slow reader
// until a signal comes or ctx ends. After an interruption it waits at most consolePatience.
func (r *runner) closeConsole(ctx context.Context, last string) error {
	if r.outcome.signal != 0 {
		limited, cancel := context.WithTimeout(context.Background(), consolePatience)
		defer cancel()
		return r.report.Console.Close(limited, last)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// ended has capacity 1, so that the goroutine ends even if nobody receives the result.
	ended := make(chan error, 1)
	go func() { ended <- r.report.Console.Close(ctx, last) }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-r.o.Signals:
			r.signalled(s, time.Now())
			if r.outcome.signal != 0 {
				cancel()
			}
		}
	}
}
