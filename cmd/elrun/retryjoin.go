package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/transport/ticket"
)

const (
	// firstPause is the pause after the first failed attempt to join. It doubles with each
	// further failure, up to longestPause (exponential backoff).
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute
)

// retryJoin repeats attempts to join a job. It returns on a signal, on a notice of preemption, and
// after an error with which all further attempts would end, too. An attempt that succeeds or lasts
// longer than longestPause resets the pause.
func retryJoin(ctx context.Context, t *terminal, attempt func(context.Context) error) error {
	for pauses := (pause.Backoff{First: firstPause, Last: longestPause}); ; {
		begun := time.Now()
		err := attempt(ctx)
		if ctx.Err() != nil || isPermanent(err) {
			return err
		}
		// The job was found, so earlier failures no longer count.
		if err == nil || time.Since(begun) > longestPause {
			pauses.Reset()
		}
		// After a job has finished retryJoin continues, so that this machine joins the next job of
		// the ticket file, too.
		report(t.stderr, err)
		wait := pauses.Next()
		fmt.Fprintf(t.stderr, "elrun: join --forever tries again in %v\n", wait)
		if err := t.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// isPermanent reports whether a further attempt would end in the same way: err is due to a
// signal, to a mistake in the command line, or to a ticket that is malformed or has expired.
func isPermanent(err error) bool {
	var s exitStatus
	if errors.As(err, &s) {
		// Statuses above 128 stand for signals. Other statuses are failures of the program or of
		// the job.
		return s == statusUsage || s > 128
	}
	return errors.Is(err, launch.ErrOptions) || isBadTicket(err)
}

// isBadTicket reports whether err says that a ticket is malformed or expired.
func isBadTicket(err error) bool {
	return errors.Is(err, ticket.ErrFormat) || errors.Is(err, ticket.ErrExpired)
}

// wait sleeps for d. A signal or the end of ctx ends it with an error.
func (t *terminal) wait(ctx context.Context, d time.Duration) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	return pause.For(ctx, d)
}
