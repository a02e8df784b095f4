package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/printable"
)

// runner is a job in progress. The goroutine of Run owns it:
//
//	spawn -> loop: notices of the children, signals, time -> finish
//
// The loop never waits for the console, so that signals work while output is stuck. The handlers of
// notices are in events.go.
type runner struct {
	o        Options
	path     string // path of the program
	begun    time.Time
	console  *console
	hosts    *hostList      // nil if all peers run on this host
	children map[int]*child // running peers, by local index
	notices  chan notice
	work     sync.WaitGroup // the goroutines that watch the children

	// State from the peers' reports, kept by parts without I/O.
	rendezvous *rendezvous
	membership *membershipLog
	restarts   *restarts
	progress   progress
	shown      int64     // step of the last plain progress line
	showAt     time.Time // time of the next line
	stalls     stalls
	joinQueue  joinQueue
	outcome    outcome

	discovery discoveryState

	graph *graphRun // nil unless the peers belong to a Program

	pendingRestarts []pendingRestart
	interrupted     time.Time        // time of the first signal
	cancelled       bool             // the end of the context took the place of the first signal, and no signal has come since
	killing         <-chan time.Time // fires at the end of the peers' grace period; nil if none runs
	suspended       bool             // the peers were stopped together with this process
	logged          map[int]bool     // logs that have been opened, by index of the peer
	orphans         *childReaper     // nil if this process gets no orphans

	printedNotes  map[string]bool // notes of peers that have been printed
	sitesReported bool            // people were told that sites are ignored

	pendingExits    []Exit    // failures of processes that are not members, for reportExits
	reportAt        time.Time // time of the report
	failureReported bool      // a failure has been reported
}

// pendingRestart is a scheduled restart of a peer.
type pendingRestart struct {
	index int
	died  time.Time
	at    time.Time
}

const (
	tickPeriod  = 100 * time.Millisecond // interval of tick
	plainPeriod = 5 * time.Second        // interval of progress lines without a terminal
	// causePeriod is how long the report of a failure waits, so that its cause is reported first.
	causePeriod = 100 * time.Millisecond
	// consolePatience is how long the end of an interrupted job waits for a console that does not
	// take its output.
	consolePatience = 2 * time.Second
)

// newRunner returns the runner of a job that has not been started. path is the path of the
// program.
func newRunner(o Options, path string, order startOrder) *runner {
	r := &runner{o: o, path: path, begun: time.Now(), notices: make(chan notice), children: make(map[int]*child),
		logged: make(map[int]bool), rendezvous: newRendezvous(o.Peers, order, o.Join), restarts: newRestarts(o.Restart)}
	r.membership = newMembershipLog(o.MinPeers, r.describe, func(id string) bool { return r.rendezvous.index(id) >= 0 })
	if len(o.Hosts) == 0 {
		r.membership.load = hostOverload
	}
	r.console = newConsole(o.Stdout, o.Stderr, o.Events, o.Live)
	return r
}

// loop runs until all children have ended and no restart is pending.
func (r *runner) loop(ctx context.Context) {
	tick := time.NewTicker(tickPeriod)
	defer tick.Stop()
	end := ctx.Done()
	for r.isActive() {
		select {
		case n := <-r.notices:
			r.notice(n)
		case a := <-r.hosts.results():
			r.hostConnected(a)
		case found := <-r.discovery.found:
			r.onDiscovered(found)
		case s := <-r.o.Signals:
			r.signalled(s, time.Now())
		case <-end:
			end = nil
			r.cancel(context.Cause(ctx), time.Now())
		case <-r.console.broken: // nobody reads the output: end as a pipeline does
			if r.outcome.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE, time.Now())
			}
		case <-r.killing:
			r.printf("peers still run %v after the signal; killing them", r.o.Grace)
			r.killAll()
		case now := <-tick.C:
			r.tick(now)
		}
	}
	r.work.Wait()
	_, _ = listControls() // removes the sockets of killed peers
	r.reportExits()
	r.printShared(r.membership.finish())
}

// isActive reports whether a process is running or will be started.
func (r *runner) isActive() bool { return r.peersActive() || r.graph != nil && r.graph.plan.isActive() }

// peersActive reports whether a peer is running or will be restarted.
func (r *runner) peersActive() bool {
	return len(r.children) > 0 || len(r.pendingRestarts) > 0 && r.rendezvous.hasForeignMembers() && !r.membership.done
}

// tick does everything that is due at now.
func (r *runner) tick(now time.Time) {
	if len(r.pendingExits) > 0 && !now.Before(r.reportAt) {
		r.reportExits()
	}
	r.hosts.beat(now)
	r.answerOverdue(now)
	r.printShared(r.membership.due(now))
	if r.outcome.signal == 0 {
		r.printLines(r.joinQueue.due(now))
	}
	r.runDueRestarts(now)
	r.runDueActions(now)
	for _, c := range r.children {
		if !c.asked.IsZero() && now.Sub(c.asked) > r.o.Grace {
			r.printf("peer %d still runs %v after it was asked to leave; killing it", c.index, r.o.Grace)
			c.asked = now
			c.signal(syscall.SIGKILL)
		}
	}
	r.showProgress(now)
}

// killAll kills all process groups and stops waiting for output.
func (r *runner) killAll() {
	r.killing = nil
	r.console.abandon()
	for c := range r.processes() {
		c.signal(syscall.SIGKILL)
	}
	r.hosts.cutOff()
}

// reportExits reports the failed processes that are not members, the likely cause of the others first,
// and the consequences.
func (r *runner) reportExits() {
	slices.SortFunc(r.pendingExits, compareCause)
	if len(r.pendingExits) > shownAlone {
		r.printf("%s", formatExits(r.pendingExits))
		r.pendingExits, r.failureReported = nil, true
	}
	for _, e := range r.pendingExits {
		next := ""
		if !r.failureReported && !r.rendezvous.started && len(r.rendezvous.peers) > 1 {
			next = "; the others run on"
		}
		r.failureReported = true
		r.printf("peer %d (pid %d) %v%s", e.Index, e.PID, e, next)
	}
	r.pendingExits = nil
}

// describe describes members for people, given their short IDs in a list.
func (r *runner) describe(ids string) string {
	parts, more := splitIDs(ids), ""
	if n := len(parts) - shownPeers; n > 1 {
		parts, more = parts[:shownPeers], fmt.Sprintf(" and %d more", n)
	}
	for i, id := range parts {
		if index := r.rendezvous.index(id); index >= 0 {
			parts[i] = fmt.Sprintf("peer %d (%s)", index, id)
		} else if host := r.rendezvous.host(id); host != "" {
			parts[i] = id + "@" + host
		}
	}
	return join(parts) + more
}

// shownPeers bounds the peers that a line names. shownAlone bounds the ends of processes that get
// a line each.
const shownPeers, shownAlone = 3, 4

// showProgress redraws the progress line, or without a terminal prints a line if there is a new
// step.
func (r *runner) showProgress(now time.Time) {
	if !r.o.Live {
		if r.showAt.IsZero() {
			r.showAt = now.Add(plainPeriod)
		}
		if now.Before(r.showAt) {
			return
		}
		r.showAt = now.Add(plainPeriod)
	}
	s := r.progress.line(now)
	if !r.isReporter() {
		s = ""
	}
	if !r.o.Live && (s == "" || r.progress.step == r.shown) {
		return
	}
	r.shown = r.progress.step
	r.console.progress(s)
}

// isReporter reports whether this launcher reports the progress of the job.
func (r *runner) isReporter() bool { return !r.o.Shared || r.rendezvous.leads() }

// printf prints a line of the launcher.
func (r *runner) printf(format string, args ...any) { r.console.say(fmt.Sprintf(format, args...)) }

// printShared prints lines about the whole job, unless another launcher does.
func (r *runner) printShared(lines []string) {
	if r.isReporter() {
		r.printLines(lines)
	}
}

// printLines prints lines of the launcher.
func (r *runner) printLines(lines []string) {
	for _, s := range lines {
		r.console.say(s)
	}
}

// running returns the local indices of the running peers, in ascending order.
func (r *runner) running() []int { return slices.Sorted(maps.Keys(r.children)) }

// finish determines the result and prints the job's last line.
func (r *runner) finish(ctx context.Context) Result {
	slices.SortFunc(r.outcome.exits, func(a, b Exit) int { return a.at.Compare(b.at) })
	r.outcome.member = r.rendezvous.started
	done, err := agreeDone(r.outcome.dones)
	last := ""
	// Disagreement about the result is an error of the job; otherwise the result is its last line.
	switch {
	case err != nil:
		r.printf("%v", err)
	case done != nil && r.isReporter():
		last = printable.Line(done.Line())
	}
	status := r.outcome.status(done, err)
	reason := r.outcome.summary(done, status)
	// After an interruption there is nothing to explain.
	switch {
	case err != nil:
		reason = err.Error()
	case r.outcome.signal != 0:
		reason = ""
	case reason != "":
		r.printf("%s", reason)
	}
	if failed := r.failedNodes(); failed != "" && status == 0 {
		status, reason = 1, failed
		r.printf("%s", failed)
	}
	// Record the end before the console is closed, which may take long.
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
// until a signal or the end of ctx; after an interruption it waits for consolePatience only.
func (r *runner) closeConsole(ctx context.Context, last string) error {
	if r.outcome.signal != 0 {
		limited, cancel := context.WithTimeout(context.Background(), consolePatience)
		defer cancel()
		return r.console.close(limited, last)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.console.close(ctx, last) }()
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
