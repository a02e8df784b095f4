package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/transport/ticket"
)

const (
	// firstPause is the pause between the first two attempts to join; it doubles with each that
	// was of no use, up to longestPause.
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute
)

// forever makes attempts to join a job until a signal or the notice of preemption ends one, or
// the pause after it, or an error shows that none can succeed.
func forever(ctx context.Context, t *terminal, attempt func(context.Context) error) error {
	pause := firstPause
	for {
		begun := time.Now()
		err := attempt(ctx)
		if ctx.Err() != nil || hopeless(err) {
			return err
		}
		if err == nil || time.Since(begun) > longestPause {
			pause = firstPause
		}
		report(t.stderr, err)
		fmt.Fprintf(t.stderr, "elrun: join --forever tries again in %v\n", pause)
		if err := t.wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// hopeless reports whether a further attempt would end as this one: it was interrupted, or
// began with a mistake in the command line.
func hopeless(err error) bool {
	var s exitStatus
	if errors.As(err, &s) {
		return s == statusUsage || s > 128
	}
	return errors.Is(err, launch.ErrOptions) || isBadTicket(err)
}

// isBadTicket reports whether an error is about a ticket that will never be good.
func isBadTicket(err error) bool {
	return errors.Is(err, ticket.ErrFormat) || errors.Is(err, ticket.ErrExpired)
}

// wait waits for some time; a signal or the end of ctx is an error.
func (t *terminal) wait(ctx context.Context, d time.Duration) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	return pause(ctx, d)
}
