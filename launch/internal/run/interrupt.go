package run

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/job"
)

// signalled handles a signal to the launcher.
func (r *runner) signalled(s os.Signal, now time.Time) {
	switch s {
	case syscall.SIGTSTP:
		for i, c := range r.procs.peers { // they do not hold up each other
			r.halted(i, c, false)
		}
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
		r.report.Printf("%v: the peers are leaving already; another signal kills them", sig)
	case signalKills:
		r.report.Printf("second signal (%v): killing the peers", sig)
		r.peers.killAll()
		r.peers.record(job.Signal{Number: int(sig)})
	case signalRepeated:
	}
}

// cancel asks the peers to leave, as SIGTERM does, when the context of Run has ended. On a
// preempted machine SIGTERM follows later, so the first signal after cancel kills no peer.
func (r *runner) cancel(cause error, now time.Time) {
	if r.outcome.signal != 0 {
		return
	}
	r.peers.journal.notice(cause.Error())
	r.forwardFirst(syscall.SIGTERM, true, fmt.Sprintf("%v: asking %s to leave", cause, r.procs.count()), now)
}

// forwardFirst passes the first signal on to the peers and prints line. If byContext is set, there
// was no signal: the context has ended. forwardFirst continues stopped peers, because a stopped process
// cannot leave.
func (r *runner) forwardFirst(sig syscall.Signal, byContext bool, line string, now time.Time) {
	r.outcome.signal = sig
	r.peers.journal.records.stop()
	r.interruption.begin(byContext, now)
	r.procs.resume()
	if len(r.procs.peers) > 0 {
		r.report.Console.Say(line)
	}
	r.peers.record(job.Signal{Number: int(sig)})
	r.graph.runDue(now)
}
