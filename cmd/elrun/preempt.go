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

// preemptGrace is how long peers may take to leave where a notice of preemption may come.
// Clouds take a machine away 30 s after the notice or later.
const preemptGrace = 25 * time.Second

// preemption is the cause of a context's end when the notice has come.
type preemption struct{ text string }

// Error says where the notice comes from.
func (p preemption) Error() string { return printable.Line("notice of preemption (" + p.text + ")") }

// preemptible runs a job under a context that the notice of preemption ends, if --preempt-notice
// names a source of it.
func (f *jobFlags) preemptible(ctx context.Context, t *terminal, job func(context.Context) error) error {
	if f.PreemptNotice == "" {
		return job(ctx)
	}
	source, err := preempt.Parse(f.PreemptNotice)
	if err != nil {
		return fmt.Errorf("%w: --preempt-notice: %w", launch.ErrOptions, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		text, err := source.Wait(ctx, func(err error) {
			fmt.Fprintf(t.stderr, "elrun: no notice of preemption can come yet, trying again: %s\n", printable.Line(err.Error()))
		})
		if err == nil {
			cancel(preemption{text})
		}
	})
	defer work.Wait()
	defer cancel(nil)
	return preempted(ctx, t, job(ctx))
}

// preempted turns the error of a job that the notice kept from starting into the status that
// one has which it ended.
func preempted(ctx context.Context, t *terminal, err error) error {
	var p preemption
	var s exitStatus
	if err == nil || errors.As(err, &s) || !errors.As(context.Cause(ctx), &p) {
		return err
	}
	report(t.stderr, err)
	return exitStatus(128 + int(syscall.SIGTERM))
}
