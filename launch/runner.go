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

// runner is a job in progress. One goroutine, that of Run, owns it:
//
//	spawn -> loop: notices of the children, signals, time -> finish
//
// The loop never waits for the console, so that signals work while output is stuck. What
// it does about notices is in reaction.go.
type runner struct {
	o        Options
	path     string // of the program
	begun    time.Time
	console  *console
	hosts    *hostList      // nil where all peers run here
	children map[int]*child // those that run, by local index
	notices  chan notice
	work     sync.WaitGroup // supervisors of the children

	// What the peers have told, kept by pure parts.
	meet     *meeting
	changes  *changes
	restarts *restarts
	progress progress
	shown    int64     // step of the last plain progress line
	showAt   time.Time // of the next one
	stalls   stalls
	lobby    lobby
	out      outcome

	discoveries discoveries

	graph *graphRun // nil unless the peers are those of a Program

	comebacks   []comeback
	interrupted time.Time        // when the first signal came
	cancelled   bool             // the end of the context came in its place, and no signal since
	killing     <-chan time.Time // end of the peers' time to obey a signal; nil if none runs
	suspended   bool             // the peers were stopped with this process
	logged      map[int]bool     // the log of the peer with this index has been begun
	orphans     *orphanage       // nil where this process gets none

	noted     map[string]bool // notes of peers that have been said
	sitesTold bool            // people were told that sites do not count

	untold []Exit    // failures of processes that are no members, for tell to report
	tellAt time.Time // when it does
	told   bool      // a failure has been reported
}

// comeback is a peer that is to be started again.
type comeback struct {
	index int
	died  time.Time
	at    time.Time
}

const (
	tickPeriod  = 100 * time.Millisecond // between two looks at what is due
	plainPeriod = 5 * time.Second        // between two progress lines that are no terminal's
	// causePeriod is how long a failure waits to be told, so that its cause is told first.
	causePeriod = 100 * time.Millisecond
	// consolePatience is how long the end of a job waits for a console that does not take
	// its output.
	consolePatience = 2 * time.Second
)

func newRunner(o Options, path string, order startOrder) *runner {
	r := &runner{o: o, path: path, begun: time.Now(), notices: make(chan notice), children: make(map[int]*child),
		logged: make(map[int]bool), meet: newMeeting(o.Peers, order, o.Join), restarts: newRestarts(o.Restart)}
	r.changes = newChanges(o.MinPeers, r.who, func(id string) bool { return r.meet.index(id) >= 0 })
	if len(o.Hosts) == 0 {
		r.changes.load = hostOverload
	}
	r.console = newConsole(o.Stdout, o.Stderr, o.Events, o.Live)
	return r
}

// loop runs until all children have ended and none is to be started again.
func (r *runner) loop(ctx context.Context) {
	tick := time.NewTicker(tickPeriod)
	defer tick.Stop()
	end := ctx.Done()
	for r.goesOn() {
		select {
		case n := <-r.notices:
			r.notice(n)
		case a := <-r.hosts.arrivals():
			r.arrived(a)
		case found := <-r.discoveries.found:
			r.discovered(found)
		case s := <-r.o.Signals:
			r.signalled(s, time.Now())
		case <-end:
			end = nil
			r.cancel(context.Cause(ctx), time.Now())
		case <-r.console.broken: // nobody reads the output: end as a pipeline does
			if r.out.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE, time.Now())
			}
		case <-r.killing:
			r.say("peers still run %v after the signal; killing them", r.o.Grace)
			r.killAll()
		case now := <-tick.C:
			r.tick(now)
		}
	}
	r.work.Wait()
	_, _ = listControls() // removes those of killed peers
	r.tell()
	r.tellAll(r.changes.end())
}

// goesOn reports whether there is anything to wait for.
func (r *runner) goesOn() bool { return r.peersGoOn() || r.graph != nil && r.graph.plan.goesOn() }

// peersGoOn reports whether there are peers to wait for.
func (r *runner) peersGoOn() bool {
	return len(r.children) > 0 || len(r.comebacks) > 0 && r.meet.strangers() && !r.changes.done
}

// tick does what is due at a time.
func (r *runner) tick(now time.Time) {
	if len(r.untold) > 0 && !now.Before(r.tellAt) {
		r.tell()
	}
	r.hosts.beat(now)
	r.answerLate(now)
	r.tellAll(r.changes.due(now))
	if r.out.signal == 0 {
		r.sayAll(r.lobby.due(now))
	}
	r.comeBack(now)
	r.advance(now)
	for _, c := range r.children {
		if !c.asked.IsZero() && now.Sub(c.asked) > r.o.Grace {
			r.say("peer %d still runs %v after it was asked to leave; killing it", c.index, r.o.Grace)
			c.asked = now
			c.signal(syscall.SIGKILL)
		}
	}
	r.showProgress(now)
}

// killAll ends all process groups at once and waits for no output.
func (r *runner) killAll() {
	r.killing = nil
	r.console.giveUp()
	for c := range r.processes() {
		c.signal(syscall.SIGKILL)
	}
	r.hosts.cutOff()
}

// tell says which processes that are no members have failed, the likely cause of all
// first, and what happens next.
func (r *runner) tell() {
	slices.SortFunc(r.untold, compareCause)
	if len(r.untold) > shownAlone {
		r.say("%s", wordExits(r.untold))
		r.untold, r.told = nil, true
	}
	for _, e := range r.untold {
		next := ""
		if !r.told && !r.meet.started && len(r.meet.guests) > 1 {
			next = "; the others run on"
		}
		r.told = true
		r.say("peer %d (pid %d) %v%s", e.Index, e.PID, e, next)
	}
	r.untold = nil
}

// who words a list of short IDs for people.
func (r *runner) who(ids string) string {
	parts, more := splitIDs(ids), ""
	if n := len(parts) - shownPeers; n > 1 {
		parts, more = parts[:shownPeers], fmt.Sprintf(" and %d more", n)
	}
	for i, id := range parts {
		if index := r.meet.index(id); index >= 0 {
			parts[i] = fmt.Sprintf("peer %d (%s)", index, id)
		} else if host := r.meet.host(id); host != "" {
			parts[i] = id + "@" + host
		}
	}
	return join(parts) + more
}

// shownPeers bounds how many peers a line names, and shownAlone how many ends of processes have a
// line each.
const shownPeers, shownAlone = 3, 4

// showProgress redraws the progress line, or says a plain one if there is a new step.
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
	if !r.tells() {
		s = ""
	}
	if !r.o.Live && (s == "" || r.progress.step == r.shown) {
		return
	}
	r.shown = r.progress.step
	r.console.progress(s)
}

// tells reports whether it is this launcher that tells how the job fares.
func (r *runner) tells() bool { return !r.o.Shared || r.meet.leads() }

// say prints a line of the launcher's own.
func (r *runner) say(format string, args ...any) { r.console.say(fmt.Sprintf(format, args...)) }

// tellAll prints lines about the whole job, if no other launcher does.
func (r *runner) tellAll(lines []string) {
	if r.tells() {
		r.sayAll(lines)
	}
}

// sayAll prints lines.
func (r *runner) sayAll(lines []string) {
	for _, s := range lines {
		r.console.say(s)
	}
}

// running returns the local indices of the processes that run, in order.
func (r *runner) running() []int { return slices.Sorted(maps.Keys(r.children)) }

// finish works out the result and prints the job's last line.
func (r *runner) finish(ctx context.Context) Result {
	slices.SortFunc(r.out.exits, func(a, b Exit) int { return a.at.Compare(b.at) })
	r.out.member = r.meet.started
	done, err := agreeDone(r.out.dones)
	last := ""
	switch {
	case err != nil:
		r.say("%v", err)
	case done != nil && r.tells():
		last = printable.Line(done.Line())
	}
	status := r.out.status(done, err)
	reason := r.out.summary(done, status)
	switch {
	case err != nil:
		reason = err.Error()
	case r.out.signal != 0:
		reason = ""
	case reason != "":
		r.say("%s", reason)
	}
	if failed := r.failedNodes(); failed != "" && status == 0 {
		status, reason = 1, failed
		r.say("%s", failed)
	}
	r.keep(status, done, reason)
	if unwritten := r.closeConsole(ctx, last); unwritten != nil && status == 0 {
		status = 1
	}
	if r.out.signal != 0 { // it may have come while the console was stuck
		status = r.out.status(done, err)
	}
	return Result{Job: r.o.Job, Exits: r.out.exits, Done: done, Status: status}
}

// closeConsole ends the console. Unless the job was interrupted it waits for a terminal that
// is stopped or a reader that is slow, as any program does: until a signal or the end of ctx.
func (r *runner) closeConsole(ctx context.Context, last string) error {
	if r.out.signal != 0 {
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
			if r.out.signal != 0 {
				cancel()
			}
		}
	}
}
