package launch

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// repeatPeriod is the time in which further signals count as repetitions of the first. The
// programs timeout and sudo, and supervisors, signal a process and its group; when a launcher is
// killed, Linux may send its children one SIGTERM for each of its threads.
const repeatPeriod = time.Second

// signalled handles a signal to the launcher.
func (r *runner) signalled(s os.Signal, now time.Time) {
	switch s {
	case syscall.SIGTSTP:
		r.stopAll()
	case syscall.SIGCONT:
		r.resume()
	default:
		r.interrupt(s, now)
	}
}

// interrupt passes the first signal on to the peers; the second one kills them. The job then
// counts as interrupted, even if the peers end with status 0.
func (r *runner) interrupt(s os.Signal, now time.Time) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		sig = syscall.SIGTERM
	}
	switch {
	case r.outcome.signal == 0:
		r.forwardFirst(sig, fmt.Sprintf("%v: passed on to %s; another signal kills them", sig, plural(len(r.children), "peer", "peers")), now)
	case r.cancelled:
		r.cancelled, r.interrupted = false, now
		r.printf("%v: the peers are leaving already; another signal kills them", sig)
	case now.Sub(r.interrupted) >= repeatPeriod:
		r.printf("second signal (%v): killing the peers", sig)
		r.killAll()
	}
}

// cancel asks the peers to leave, as SIGTERM does, when the context of Run has ended. On a
// preempted machine SIGTERM follows later, so the first signal after cancel kills no peer.
func (r *runner) cancel(cause error, now time.Time) {
	if r.outcome.signal != 0 {
		return
	}
	r.cancelled = true
	r.forwardFirst(syscall.SIGTERM, fmt.Sprintf("%v: asking %s to leave", cause, plural(len(r.children), "peer", "peers")), now)
}

// forwardFirst passes the first signal on to the peers and prints line.
func (r *runner) forwardFirst(sig syscall.Signal, line string, now time.Time) {
	r.outcome.signal, r.interrupted, r.pendingRestarts = sig, now, nil
	r.resume()
	defer r.runDueActions(now)
	if len(r.children) == 0 {
		return
	}
	r.killing = time.After(r.o.Grace)
	r.console.say(line)
	if sig == syscall.SIGPIPE || r.rendezvous.hasForeignMembers() {
		// SIGPIPE: the peers' own output is not broken. If the job has peers of other launchers,
		// they go on, and lose nobody if these peers leave.
		sig = syscall.SIGTERM
	}
	for _, c := range r.children {
		c.ask(sig)
	}
}

// stopAll stops the peers and then this process. A terminal's Ctrl-Z does not reach the peers,
// because each has its own process group. The shell's fg or bg continues this process, and resume
// continues the peers.
func (r *runner) stopAll() {
	r.suspended = true
	for c := range r.processes() {
		c.signal(syscall.SIGSTOP)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// resume continues stopped peers.
func (r *runner) resume() {
	if !r.suspended {
		return
	}
	r.suspended = false
	for c := range r.processes() {
		c.signal(syscall.SIGCONT)
	}
}
