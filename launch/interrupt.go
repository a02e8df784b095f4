package launch

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// signalled handles a signal to the launcher.
func (r *runner) signalled(s os.Signal, now time.Time) {
	switch s {
	case syscall.SIGTSTP:
		r.procs.stop()
	case syscall.SIGCONT:
		r.procs.resume()
	default:
		r.interrupt(s, now)
	}
}

// interrupt passes the first signal on to the peers; the second signal kills the peers. The job
// then counts as interrupted, even if the peers end with status 0.
func (r *runner) interrupt(s os.Signal, now time.Time) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		sig = syscall.SIGTERM
	}
	if r.outcome.signal == 0 {
		r.forwardFirst(sig, false, fmt.Sprintf("%v: passed on to %s; another signal kills them", sig, r.procs.count()), now)
		return
	}
	switch r.interruption.again(now) {
	case signalAcknowledged:
		r.report.printf("%v: the peers are leaving already; another signal kills them", sig)
	case signalKills:
		r.report.printf("second signal (%v): killing the peers", sig)
		r.killAll()
	case signalRepeated:
	}
}

// cancel asks the peers to leave, as SIGTERM does, when the context of Run has ended. On a
// preempted machine SIGTERM follows later, so the first signal after cancel kills no peer.
func (r *runner) cancel(cause error, now time.Time) {
	if r.outcome.signal != 0 {
		return
	}
	r.forwardFirst(syscall.SIGTERM, true, fmt.Sprintf("%v: asking %s to leave", cause, r.procs.count()), now)
}

// forwardFirst passes the first signal on to the peers and prints line. If byContext is set, there
// was no signal: the context has ended. forwardFirst cancels restarts, and continues stopped peers,
// because a stopped process cannot leave.
func (r *runner) forwardFirst(sig syscall.Signal, byContext bool, line string, now time.Time) {
	r.outcome.signal = sig
	r.interruption.begin(byContext, now)
	r.peers.cancelRestarts()
	r.procs.resume()
	defer r.graph.runDue(now)
	if len(r.procs.peers) == 0 {
		return
	}
	r.killing = time.After(r.o.Grace)
	r.report.console.say(line)
	if sig == syscall.SIGPIPE || r.rendezvous.hasForeignMembers() {
		// Send SIGTERM instead of SIGPIPE, because the peers' own output is not broken. Send
		// SIGTERM also if the job has peers of other launchers, so that these peers leave and are
		// not lost.
		sig = syscall.SIGTERM
	}
	r.procs.ask(sig)
}
