package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// A launcher has a control socket, as its peers have. Two launchers that begin jobs of one name at
// the same time want the same socket, and one does not get it. Over the socket elrun stop reaches
// all processes of the launcher: also those that have not called Init, and those that are stopped.

// calls hands functions over to the launcher's loop, which owns the launcher's state. Until the
// loop begins, they wait.
type calls struct {
	due  chan func() // without a buffer: who hands a function over knows that the loop runs it
	over chan struct{}
}

// newCalls returns calls without a function.
func newCalls() calls { return calls{make(chan func()), make(chan struct{})} }

// do lets the loop run f, and waits for it. It returns false if ctx has ended, or the loop, and f
// does not run.
func (c calls) do(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case c.due <- func() { f(); close(done) }:
		<-done
		return true
	case <-ctx.Done():
	case <-c.over:
	}
	return false
}

// launcherServices answers the requests on the control socket of a launcher.
type launcherServices struct{ r *runner }

// Answer implements ctl.Responder.
func (l launcherServices) Answer(ctx context.Context, what wire.Request) (out wire.Reply, err error) {
	answer := func() { out = wire.Reply{Stopping: true, Grace: l.r.o.Grace, PIDs: l.r.procs.pids()} }
	switch what.Request {
	case "stop":
	case "record":
		answer = func() { out = wire.Reply{Record: l.r.remainsOf(what.Peer), Done: "no record"} }
	case "events":
		answer = func() {
			l.r.figures.watch(time.Now()) // the peers tell what they use
			lines, next := l.r.peers.journal.tape.play(what.Since, time.Now())
			out = wire.Reply{Events: lines, Next: next}
		}
	case "watch":
		if err := l.watch(ctx); err != nil {
			return out, err
		}
		answer = func() {
			s := timeline.Since(l.r.peers.journal.model.Snapshot(), what.Since)
			out = wire.Reply{Snapshot: &s, Parts: l.r.figures.parts(), Launcher: l.r.roster.order.Launcher}
		}
	default:
		return out, fmt.Errorf("unknown request %q", what.Request)
	}
	if !l.r.calls.do(ctx, answer) {
		return out, errNoLoop
	}
	return out, nil
}

// errNoLoop reports that the launcher's loop does not run.
var errNoLoop = errors.New("it has not started its peers yet, or they have ended")

// foreignPatience is how long the first question waits for the figures of other launchers.
const foreignPatience = time.Second

// watch records that somebody watches the job, and waits for the figures of other launchers.
func (l launcherServices) watch(ctx context.Context) error {
	var there <-chan struct{}
	if !l.r.calls.do(ctx, func() { there = l.r.figures.watch(time.Now()) }) {
		return errNoLoop
	}
	select {
	case <-there:
	case <-time.After(foreignPatience):
	case <-ctx.Done():
	}
	return nil
}

// End implements ctl.Responder. The connection to the client has ended, so this does not wait for it.
func (l launcherServices) End() { l.r.calls.do(context.Background(), l.stop) }

// stop ends the job as elrun stop asks: it asks all peers to leave, as a signal does, but the job
// then counts as stopped and not as interrupted. Peers that have been asked before get no second
// SIGTERM, which would end them at once. A job whose peers have ended is not stopped.
func (l launcherServices) stop() {
	r := l.r
	if r.outcome.ending() || !r.isActive() {
		return
	}
	r.outcome.stopping = true
	r.peers.journal.records.stop()
	r.peers.record(job.Stop{})
	r.graph.runDue(time.Now())
}

// serveLauncher opens the control socket of a launcher. end closes it, after the loop. An error
// means that the name of the job is taken. A launcher without a socket, because no directory is fit
// for it, runs its job all the same.
func serveLauncher(r *runner) (end func(), err error) {
	at := ctl.SocketName{Job: r.o.Job, Index: ctl.LauncherIndex}
	if r.o.Join {
		at.PID = os.Getpid()
	}
	c, err := ctl.Serve(at, launcherServices{r})
	switch {
	case err == nil:
		return func() {
			close(r.calls.over)
			_ = c.Close()
		}, nil
	case at.PID == 0 && errors.Is(err, syscall.EADDRINUSE):
		return nil, nameTaken(r.o.Job)
	}
	return func() {}, nil
}

// nameTaken returns the error for a job whose name another job of this user has here.
func nameTaken(job string) error {
	return fmt.Errorf("launch: %w: a job named %s is running already: choose another --name, or end that job by elrun stop %[2]s", spec.ErrOptions, job)
}
