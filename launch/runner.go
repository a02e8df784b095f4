package launch

import (
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/job"
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
//	graph       the services and tasks of a Program
//	roster      the IDs of the peers, and the state of the group
//	report      lines and the progress line for people
//	membership, stalls, joinQueue, failures
//	            which lines people get about members, stalls, newcomers and failures
//	outcome     how the processes ended, and the exit status that follows
//	discovery   the announcement of the job, and lookups
type runner struct {
	o     *Options // as completed by complete; read only
	begun time.Time

	procs  *processes
	peers  *supervisor
	graph  *graphRun // nil unless the peers belong to a Program
	report *reporter

	// State from the peers' reports, kept by parts without I/O.
	roster     *roster
	membership *membershipLog
	stalls     stalls
	joinQueue  joinQueue
	failures   failureReport
	outcome    outcome

	discovery discoveryState
	calls     calls // from the control socket of this launcher

	interruption interruption // meaningful once outcome.signal is set
	looked       time.Time    // when it last looked which processes of this host are stopped
}

const (
	tickPeriod = 100 * time.Millisecond // interval of tick
	lookPeriod = time.Second            // interval of the looks whether a process is stopped
	// consolePatience is how long the launcher waits, at the end of an interrupted job, for a
	// console whose output blocks.
	consolePatience = 2 * time.Second
)

// newRunner returns the runner of a job that has not been started. path is the path of the program.
// The runner owns the processes that it starts: all of them have ended when loop returns.
func newRunner(o Options, path string, order startOrder) *runner {
	group := newRoster(order)
	r := &runner{o: &o, begun: time.Now(), calls: newCalls(), roster: group, report: newReporter(&o.Output, group.leads)}
	r.membership = newMembershipLog(o.Membership.MinPeers, group.describe, func(id string) bool { return group.index(id) >= 0 })
	if len(o.Remote.Hosts) == 0 {
		r.membership.load, r.stalls.load = hostOverload, hostOverload
	}
	r.procs = newProcesses(&o, path, r.report.console)
	r.peers = newSupervisor(&o, r.procs, r.report, group)
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
		case a := <-r.procs.hosts.results():
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
		case <-r.report.console.broken: // nobody reads the output: end as a pipeline does
			if r.outcome.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE, time.Now())
			}
		case now := <-tick.C:
			r.tick(now)
		}
	}
	r.procs.work.Wait()
	r.peers.judge(time.Now())
	_, _ = listControls() // removes the sockets of killed peers
	r.report.lines(r.failures.take(r.isWaiting()))
	r.report.lines(r.stalls.due(time.Time{}, r.peers.want, r.roster.describe))
	r.report.shared(r.membership.finish())
}

// isActive reports whether a process is running or will be started.
func (r *runner) isActive() bool { return r.peers.isActive() || r.graph.isActive() }

// tick does everything that is due at now.
func (r *runner) tick(now time.Time) {
	r.report.lines(r.failures.due(now, r.isWaiting()))
	r.procs.hosts.beat(now)
	r.answerOverdue(now)
	r.peers.judge(now)
	r.report.lines(r.stalls.due(now, r.peers.want, r.roster.describe))
	r.report.shared(r.membership.due(now))
	if !r.outcome.ending() {
		r.report.lines(r.joinQueue.due(now))
	}
	if now.Sub(r.looked) >= lookPeriod {
		r.looked = now
		r.lookAll()
	}
	r.peers.record(job.Tick{})
	r.graph.runDue(now)
	r.report.showProgress(now)
}

// isWaiting reports whether programs run that do not form a group yet.
func (r *runner) isWaiting() bool {
	return !r.o.Join && r.peers.generation == 0 && len(r.procs.peers) > 0
}

// finish determines the result and prints the job's last line.
func (r *runner) finish(ctx context.Context) Result {
	slices.SortFunc(r.outcome.exits, func(a, b Exit) int { return a.at.Compare(b.at) })
	done, err := agreeDone(r.outcome.dones)
	last := ""
	// If the peers disagree about the result, the job fails; otherwise the result is the last line
	// of the output.
	if err == nil && done != nil && r.report.isLeading() && r.outcome.mistake == "" {
		last = printable.Line(done.Line())
	}
	status := r.outcome.status()
	reason := r.outcome.summary(r.report.progress.position())
	if reason != "" {
		r.report.printf("%s", reason)
	}
	if failed := r.graph.failedNodes(); failed != "" && status == 0 {
		status, reason = 1, failed
		r.report.printf("%s", failed)
	}
	// Record the end before the console is closed, because closing may take long.
	r.recordEnd(status, done, reason)
	if unwritten := r.closeConsole(ctx, last); unwritten != nil && status == 0 {
		status = 1
	}
	if r.outcome.signal != 0 { // a signal may have come while the console was stuck
		status = r.outcome.status()
	}
	return Result{Job: r.o.Job, Exits: r.outcome.exits, Done: done, Status: status}
}

// closeConsole ends the console. Like any program it waits for a stopped terminal or a slow reader
// until a signal comes or ctx ends. After an interruption it waits at most consolePatience.
func (r *runner) closeConsole(ctx context.Context, last string) error {
	if r.outcome.signal != 0 {
		limited, cancel := context.WithTimeout(context.Background(), consolePatience)
		defer cancel()
		return r.report.console.close(limited, last)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// ended has capacity 1, so that the goroutine ends even if nobody receives the result.
	ended := make(chan error, 1)
	go func() { ended <- r.report.console.close(ctx, last) }()
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
