package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/event"
)

// runner is a job in progress. One goroutine, that of Run, owns it:
//
//	start -> loop: notices of the children, signals, time -> finish
//
// The loop never waits for the console, so that signals work while output is stuck.
type runner struct {
	o        Options
	console  *console
	children []*child // nil where one could not be started or has ended
	notices  chan notice
	running  int
	work     sync.WaitGroup // supervisors of the children

	// What the peers have told, kept by pure parts.
	meet     *meeting
	progress progress
	shown    string // last plain progress line
	stalls   stalls
	dones    []doneReport
	result   Result

	signal  syscall.Signal   // that interrupted the job; 0 if none
	killing <-chan time.Time // end of the peers' time to obey it; nil if none runs

	untold  []Exit // failures that tell has to report
	telling <-chan time.Time
	told    bool // a failure has been reported
}

// doneReport is a peer's done event.
type doneReport struct {
	index int
	done  event.Done
}

const (
	livePeriod  = 100 * time.Millisecond // between two progress lines on a terminal
	plainPeriod = 5 * time.Second        // and elsewhere
	// causePeriod is how long a failure waits to be told, so that its cause is told first.
	causePeriod = 100 * time.Millisecond
	// consolePatience is how long the end of a job waits for a console that does not take
	// its output.
	consolePatience = 2 * time.Second
)

// loop runs until all children have ended.
func (r *runner) loop(ctx context.Context) {
	period := plainPeriod
	if r.o.Live {
		period = livePeriod
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	end := ctx.Done()
	for r.running > 0 {
		select {
		case n := <-r.notices:
			r.notice(n)
		case s := <-r.o.Signals:
			r.interrupt(s)
		case <-end:
			end = nil
			r.interrupt(syscall.SIGTERM)
		case <-r.console.broken: // nobody reads the output: end as a pipeline does
			if r.signal == 0 { // a closed terminal sends SIGHUP as well
				r.interrupt(syscall.SIGPIPE)
			}
		case <-r.killing:
			r.say("peers still run %v after the signal; killing them", r.o.Grace)
			r.killAll()
		case <-r.telling:
			r.tell()
		case <-tick.C:
			r.showProgress()
		}
	}
	r.tell()
	r.work.Wait()
}

// interrupt passes the first signal on and lets the second kill. The result of the job is
// then that it was interrupted, even if the peers make the best of it and end with 0.
func (r *runner) interrupt(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		sig = syscall.SIGTERM
	}
	if r.signal != 0 {
		r.say("second signal (%v): killing the peers", sig)
		r.killAll()
		return
	}
	r.signal = sig
	r.killing = time.After(r.o.Grace)
	r.say("%v: passed on to %d peers; once more kills them", sig, r.running)
	if sig == syscall.SIGPIPE {
		sig = syscall.SIGTERM // theirs are not broken
	}
	for _, c := range r.children {
		c.signal(sig)
		c.signal(syscall.SIGCONT) // a stopped process could not see it
	}
}

// killAll ends all process groups at once and waits for no output.
func (r *runner) killAll() {
	r.killing = nil
	r.console.giveUp()
	for _, c := range r.children {
		c.signal(syscall.SIGKILL)
	}
}

// notice handles what a child's goroutines report.
func (r *runner) notice(n notice) {
	switch {
	case n.exit != nil:
		r.exited(*n.exit)
	case n.err != nil:
		r.say("peer %d: %v", n.from, n.err)
	case n.msg.Hello != nil:
		letters := r.meet.hello(n.from, *n.msg.Hello)
		if aborts(letters) {
			r.say("the peers that wait to join are told to end: %s", letters[0].msg.Abort)
		}
		r.deliver(letters)
	case n.msg.Event != nil:
		r.event(n.from, n.msg.Event)
	}
}

// aborts reports whether the letters say that there will be no group.
func aborts(letters []letter) bool { return len(letters) > 0 && letters[0].msg.Abort != "" }

// deliver sends letters. A peer that cannot take its own is ending, or is stuck and
// found by the others.
func (r *runner) deliver(letters []letter) {
	for _, l := range letters {
		_ = r.children[l.to].pipe.send(l.msg)
	}
}

// exited notes the end of a process and tells the others if there can be no group.
func (r *runner) exited(e Exit) {
	r.running--
	r.children[e.Index] = nil // its process group's number may come to mean another
	r.result.Exits = append(r.result.Exits, e)
	letters := r.meet.exit(e.Index, e.String())
	r.deliver(letters)
	switch {
	case r.signal != 0:
	case aborts(letters):
		r.say("peer %d (pid %d) %v before all had joined; the others are told to end", e.Index, e.PID, e)
	case e.Failed():
		r.untold = append(r.untold, e)
		if r.telling == nil {
			r.telling = time.After(causePeriod)
		}
	}
}

// tell says which processes have failed, the likely cause of all first, and what
// happens next.
func (r *runner) tell() {
	slices.SortFunc(r.untold, compareCause)
	for _, e := range r.untold {
		next := ""
		switch {
		case r.told || len(r.children) == 1:
		case r.meet.started:
			next = "; calls of the other peers fail with an error that names it"
		default:
			next = "; the others run on"
		}
		r.told = true
		r.say("peer %d (pid %d) %v%s", e.Index, e.PID, e, next)
	}
	r.untold, r.telling = nil, nil
}

// failed reports whether a process has failed.
func (r *runner) failed() bool {
	for _, e := range r.result.Exits {
		if e.Failed() {
			return true
		}
	}
	return false
}

// event keeps what the launcher shows.
func (r *runner) event(from int, line json.RawMessage) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		r.say("peer %d: %v", from, err)
		return
	}
	switch b := e.Body.(type) {
	case event.Step:
		r.progress.observe(e, time.Now())
	case event.Stall:
		if s := r.stalls.line(from, b, time.Now(), r.who); s != "" {
			r.say("%s", s)
		}
	case event.Done:
		r.dones = append(r.dones, doneReport{from, b})
	}
}

// who words a list of short IDs for people.
func (r *runner) who(ids string) string {
	parts := splitIDs(ids)
	for i, id := range parts {
		if index := r.meet.index(id); index >= 0 {
			parts[i] = fmt.Sprintf("peer %d (%s)", index, id)
		}
	}
	return join(parts)
}

// showProgress redraws the progress line, or says a plain one if there is news.
func (r *runner) showProgress() {
	s := r.progress.line(time.Now())
	if s == "" || !r.o.Live && s == r.shown {
		return
	}
	r.shown = s
	r.console.progress(s)
}

// say prints a line of the launcher's own.
func (r *runner) say(format string, args ...any) { r.console.say(fmt.Sprintf(format, args...)) }

// finish works out the result and prints the job's last line.
func (r *runner) finish() {
	slices.SortFunc(r.result.Exits, func(a, b Exit) int { return a.at.Compare(b.at) })
	last := ""
	done, err := agreeDone(r.dones)
	switch {
	case err != nil:
		r.say("%v", err)
	case done != nil:
		r.result.Done = done
		last = done.Line()
	}
	switch {
	case r.signal != 0:
		r.result.Status = 128 + int(r.signal)
	case r.failed() || err != nil:
		r.result.Status = 1
	}
	r.console.close(last, consolePatience)
}

// agreeDone returns what all peers reported, nil if none did, or an error that names
// two who differ. All peers hold the same parameters, so a difference means a broken
// program or a broken machine, and either result may be the wrong one.
func agreeDone(reports []doneReport) (*event.Done, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	a := reports[0]
	for _, b := range reports[1:] {
		if b.done.SHA256 != a.done.SHA256 {
			return nil, fmt.Errorf("%w: sha256 of peer %d is %s, of peer %d %s",
				errDisagree, a.index, a.done.SHA256, b.index, b.done.SHA256)
		}
	}
	return &a.done, nil
}
