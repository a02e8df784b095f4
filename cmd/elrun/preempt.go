package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/preempt"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// preemptGrace is the time that peers get to leave after a notice of preemption. Clouds take a
// machine away 30 s after the notice or later, and elrun needs some seconds to end after its peers
// have ended.
const preemptGrace = 25 * time.Second

// preemption is the cause of a context that a notice of preemption has cancelled. launch prints
// its text as the reason for the end of the job.
type preemption struct{ text string }

// Error names the source of the notice.
func (p preemption) Error() string { return printable.Line("notice of preemption (" + p.text + ")") }

// preemptible runs a job with a context that the notice of preemption cancels, if
// --preempt-notice names a source of notices.
func (j *jobFlags) preemptible(ctx context.Context, t *terminal, job func(context.Context) error) error {
	if j.PreemptNotice == "" {
		return job(ctx)
	}
	source, err := preempt.Parse(j.PreemptNotice)
	if err != nil {
		return fmt.Errorf("%w: --preempt-notice: %w", launch.ErrOptions, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		text, err := source.Wait(ctx, func(err error) {
			fmt.Fprintf(t.stderr, "elrun: the source of preemption notices cannot be read, trying again: %s\n", printable.Line(err.Error()))
		})
		if err == nil {
			cancel(preemption{text})
		}
	})
	// The deferred calls run in reverse order: cancel ends source.Wait, and then Wait waits for its
	// goroutine.
	defer work.Wait()
	defer cancel(nil)
	return preempted(ctx, t, job(ctx))
}

// preempted returns the outcome of a job whose machine may have been taken away. If the notice came
// before the job had started, err is only a consequence of the notice. Then err is printed, and the
// status equals the status of a job that SIGTERM has ended.
func preempted(ctx context.Context, t *terminal, err error) error {
	var p preemption
	var s exitStatus
	if err == nil || errors.As(err, &s) || !errors.As(context.Cause(ctx), &p) {
		return err
	}
	report(t.stderr, err)
	return exitStatus(128 + int(syscall.SIGTERM))
}
