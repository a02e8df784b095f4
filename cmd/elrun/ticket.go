package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/transport/ticket"
)

// ticketCommand is the commands elrun ticket [JOB] and elrun ticket revoke [JOB] [TICKET]. The
// three arguments are separate fields, because after a list of arguments kong would not accept
// flags.
type ticketCommand struct {
	Job    string        `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one. The word revoke makes a ticket of a job invalid: elrun ticket revoke [JOB] [TICKET]."`
	First  string        `arg:"" optional:"" hidden:""`
	Second string        `arg:"" optional:"" hidden:""`
	Valid  time.Duration `default:"24h" placeholder:"D" help:"How long the ticket holds (${default})."`
	Uses   int           `placeholder:"N" help:"How many peers it lets in (default: any number)."`
	Follow string        `placeholder:"FILE" help:"Until the job ends, keep a valid ticket in FILE, with the addresses of live members: elrun writes a new ticket before the old one expires."`
}

// revokeWord in place of a job's name makes the command revoke a ticket.
const revokeWord = "revoke"

// Run prints a ticket, keeps a ticket in a file, or revokes tickets.
func (c *ticketCommand) Run(ctx context.Context, t *terminal) error {
	switch {
	case c.Job == revokeWord:
		// A job with the name "revoke" can be named by the beginning of its name.
		return c.revoke(ctx, t)
	case c.First != "":
		fmt.Fprintf(t.stderr, "elrun: unexpected argument %s\nusage: elrun ticket [JOB] [flags], or elrun ticket revoke [JOB] [TICKET]\n", printable.Line(c.First))
		return exitStatus(statusUsage)
	case c.Valid <= 0: // checked before the job is looked up: a usage error even if there is no such job
		return fmt.Errorf("%w: ticket valid for %v, want more than 0", launch.ErrOptions, c.Valid)
	case c.Uses < 0:
		return fmt.Errorf("%w: ticket for %d peers, want 0 (any number) or more", launch.ErrOptions, c.Uses)
	}
	job, err := launch.Find(ctx, c.Job)
	if err != nil {
		return err
	}
	if c.Follow != "" {
		return c.follow(ctx, t, job)
	}
	k, err := c.issue(ctx, t, job)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, k.Text)
	return err
}

// issue gets a new ticket from the job. It prints the note that comes with the ticket on standard
// error, so that standard output has the ticket only.
func (c *ticketCommand) issue(ctx context.Context, t *terminal, job *launch.Job) (launch.Ticket, error) {
	k, err := job.Invite(ctx, launch.Invitation{Valid: c.Valid, Uses: c.Uses})
	if err == nil && k.Note != "" {
		fmt.Fprintf(t.stderr, "elrun: job %s: %s\n", k.Job, k.Note)
	}
	return k, err
}

// revoke revokes the ticket with a given text or ID, or all tickets of a job.
func (c *ticketCommand) revoke(ctx context.Context, t *terminal) error {
	name, which := c.First, c.Second
	if which == "" {
		// A whole ticket has the job's name, so the job need not be named beside it.
		if k, err := ticket.Parse(name); err == nil {
			name, which = k.Job, name
		}
	}
	job, err := launch.Find(ctx, name)
	if errors.Is(err, launch.ErrNoJob) && which == "" && name != "" {
		job, err = launch.Find(ctx, "") // name may be a ticket ID of the only job
		which = name
	}
	if err != nil {
		return err
	}
	text, err := job.Revoke(ctx, which)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "job %s: %s\n", job.Name(), printable.Line(text))
	return err
}

const (
	// followPeriod is the period at which follow asks for the current members and updates the
	// ticket.
	followPeriod = 2 * time.Second
	// renewPart is the part of the validity that is left when follow gets a new ticket:
	// 1/renewPart.
	renewPart = 4
)

// follow keeps a valid ticket in the file of --follow until the job ends or a signal comes. The
// file changes only when the ticket changes. While the job does not answer, the last ticket stays
// in the file: other hosts may still reach the members that it names.
func (c *ticketCommand) follow(ctx context.Context, t *terminal, job *launch.Job) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	k, err := c.issue(ctx, t, job)
	if err != nil {
		return err
	}
	written := ""
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for {
		if k.Text != written {
			if err := replaceFile(c.Follow, k.Text+"\n"); err != nil {
				return fmt.Errorf("write the ticket to %s: %w", c.Follow, err)
			}
			written = k.Text
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if k, err = c.fresh(ctx, t, job, k); err != nil {
			if errors.Is(err, launch.ErrNoJob) {
				return nil
			}
			fmt.Fprintf(t.stderr, "elrun: job %s: the ticket in %s was not updated, trying again: %s\n", job.Name(), c.Follow, printable.Line(err.Error()))
		}
	}
}

// fresh returns the ticket k with the current members, or a new ticket if k is about to expire.
// With an error it returns k unchanged.
func (c *ticketCommand) fresh(ctx context.Context, t *terminal, job *launch.Job, k launch.Ticket) (launch.Ticket, error) {
	// Refresh updates the addresses of members; validity and number of uses stay the same.
	if time.Until(k.Expires) > c.Valid/renewPart {
		now, err := job.Refresh(ctx, k.Text)
		if err == nil {
			return now, nil
		}
		// ErrNoJob means that the job has ended, which is the normal end of this command.
		if errors.Is(err, launch.ErrNoJob) {
			return k, err
		}
	}
	// A ticket that cannot be refreshed may have been revoked or used up: a new one replaces it.
	now, err := c.issue(ctx, t, job)
	if err != nil {
		return k, err
	}
	return now, nil
}

// replaceFile replaces a file atomically: readers see either the old text or the new text. Only the
// user may read it.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new") // with private.File
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(private.File), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
