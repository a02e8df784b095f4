package launch

import (
	"cmp"
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/printable"
)

// runner is a job in progress. The goroutine of Run owns it:
//
//	spawn -> loop: notices of the processes, signals, time -> finish
//
// The loop never waits for the console, so that signals work while output is stuck. The methods of
// runner react to notices (events.go) and signals. Its parts hold the state:
//
//	procs       the processes that run, and the hosts on which they do
//	peers       how many peers there should be, and their restarts
//	graph       the services and tasks of a Program
//	rendezvous  which peers have said hello, and the answer to each
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
	rendezvous *rendezvous
	membership *membershipLog
	stalls     stalls
	joinQueue  joinQueue
	failures   failureReport
	outcome    outcome

	discovery discoveryState
	calls     calls // from the control socket of this launcher

	interruption interruption     // meaningful once outcome.signal is set
	killing      <-chan time.Time // fires at the end of the peers' grace period; nil if none runs
}

const (
	tickPeriod = 100 * time.Millisecond // interval of tick
	// consolePatience is how long the launcher waits, at the end of an interrupted job, for a
	// console whose output blocks.
	consolePatience = 2 * time.Second
)

// newRunner returns the runner of a job that has not been started. path is the path of the program.
// The runner owns the processes that it starts: all of them have ended when loop returns.
func newRunner(o Options, path string, order startOrder) *runner {
	group := newRendezvous(o.Peers, order, o.Join)
	r := &runner{o: &o, begun: time.Now(), calls: newCalls(), rendezvous: group, report: newReporter(&o.Output, group.leads)}
	r.membership = newMembershipLog(o.Membership.MinPeers, group.describe, func(id string) bool { return group.index(id) >= 0 })
	if len(o.Remote.Hosts) == 0 {
		r.membership.load, r.stalls.load = hostOverload, hostOverload
	}
	r.procs = newProcesses(&o, path, r.report.console)
	r.peers = &supervisor{o: &o, procs: r.procs, report: r.report, rendezvous: group, joinQueue: &r.joinQueue,
		mistaken: func(what string) {
			r.outcome.mistake = cmp.Or(r.outcome.mistake, what)
			r.peers.cancelRestarts()
			group.finished = true // for peers that wait to join
		},
		finished: func() bool { return r.membership.done }, want: o.Peers, restarts: newRestarts(o.Membership.Restart)}
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
		case s := <-r.o.Signals:
			r.signalled(s, time.Now())
		case <-end:
			end = nil
			r.cancel(context.Cause(ctx), time.Now())
		case <-r.report.console.broken: // nobody reads the output: end as a pipeline does
			if r.outcome.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE, time.Now())
			}
		case <-r.killing:
			r.report.printf("peers still run %v after they were asked to end; killing them", r.o.Grace)
			for _, c := range r.procs.peers {
				c.late = true
			}
			r.killAll()
		case now := <-tick.C:
			r.tick(now)
		}
	}
	r.procs.work.Wait()
	r.peers.judge(time.Now())
	_, _ = listControls() // removes the sockets of killed peers
	r.report.lines(r.failures.take(r.rendezvous.isWaiting()))
	r.report.lines(r.stalls.due(time.Time{}, r.peers.want, r.rendezvous.describe))
	r.report.shared(r.membership.finish())
}

// isActive reports whether a process is running or will be started.
func (r *runner) isActive() bool { return r.peers.isActive() || r.graph.isActive() }

// tick does everything that is due at now.
func (r *runner) tick(now time.Time) {
	r.report.lines(r.failures.due(now, r.rendezvous.isWaiting()))
	r.procs.hosts.beat(now)
	r.answerOverdue(now)
	r.peers.judge(now)
	r.report.lines(r.stalls.due(now, r.peers.want, r.rendezvous.describe))
	r.report.shared(r.membership.due(now))
	if !r.outcome.ending() {
		r.report.lines(r.joinQueue.due(now))
	}
	r.peers.restartDue(now)
	r.graph.runDue(now)
	r.report.lines(r.procs.killOverdue(now, r.o.Grace))
	r.report.showProgress(now)
}

// killAll kills all process groups and stops waiting for output.
func (r *runner) killAll() {
	r.killing = nil
	r.report.console.abandon()
	r.procs.signal(syscall.SIGKILL)
	r.procs.hosts.cutOff()
}

// finish determines the result and prints the job's last line.
func (r *runner) finish(ctx context.Context) Result {
	slices.SortFunc(r.outcome.exits, func(a, b Exit) int { return a.at.Compare(b.at) })
	r.outcome.member = r.rendezvous.started
	done, err := agreeDone(r.outcome.dones)
	last := ""
	// If the peers disagree about the result, the job fails; otherwise the result is the last line
	// of the output.
	switch {
	case err != nil:
		r.report.printf("%v", err)
	case done != nil && r.report.isLeading() && r.outcome.mistake == "":
		last = printable.Line(done.Line())
	}
	status := r.outcome.status(done, err)
	reason := r.outcome.summary(done, status, r.report.progress.position())
	// After an interruption nobody needs a reason.
	switch {
	case err != nil:
		reason = err.Error()
	case r.outcome.signal != 0:
		reason = ""
	case reason != "":
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
		status = r.outcome.status(done, err)
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
