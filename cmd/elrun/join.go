package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/launch"
)

// joinCommand is the command elrun join. Ticket is a flag, because kong treats all words after
// the first argument as words of the program; nameTicket lets users write it as an argument.
type joinCommand struct {
	Ticket      string        `placeholder:"TICKET" help:"Ticket of the job to join, from elrun ticket; may stand before the flags, without --ticket. - reads the ticket from standard input and @FILE from a file, to hide it from others on this host."`
	Forever     bool          `help:"Join again when the job has finished or cannot be found, with pauses of 5 s to 5 min, until a signal ends this. A ticket in @FILE is read each time."`
	JoinTimeout time.Duration `default:"1m" placeholder:"D" help:"How long to look for a member that lets these peers in, counted from the last answer of a member (${default}). The error lists the addresses tried."`
	jobFlags
}

// Validate implements kong's validation: its errors are usage errors.
func (j *joinCommand) Validate() error {
	if j.JoinTimeout <= 0 {
		return fmt.Errorf("--join-timeout %v: want more than 0", j.JoinTimeout)
	}
	return j.jobFlags.Validate()
}

// Run starts peers that join a running job, and waits for their end.
func (j *joinCommand) Run(ctx context.Context, t *terminal) error {
	return j.preemptible(ctx, t, func(ctx context.Context) error {
		if !j.Forever {
			return j.join(ctx, t)
		}
		return j.joinForever(ctx, t)
	})
}

// join makes one attempt to join, and waits for the end of the peers.
func (j *joinCommand) join(ctx context.Context, t *terminal) error {
	reading, release := t.interruptible(ctx)
	ticket, err := readTicket(reading, j.Ticket, t.stdin)
	release()
	if err != nil {
		return err
	}
	// In a Slurm step each task is a launcher whose peers join the job. Without -n a task has one
	// peer, as srun starts one task for each peer.
	task, err := j.task()
	if err != nil {
		return err
	}
	return j.run(ctx, t, func(o *launch.Options) {
		o.Join, o.Ticket, o.Membership.JoinTimeout = true, ticket, j.JoinTimeout
		if task != nil {
			o.Peers, o.Output.Label = max(1, int(j.Peers)), task.Label()
		}
	})
}

// joinForever joins again whenever the job ends or cannot be found. A ticket in a file is read
// before each attempt, because elrun ticket --follow replaces it. So a bad ticket in a file does
// not end the attempts. A ticket on standard input is read once.
func (j *joinCommand) joinForever(ctx context.Context, t *terminal) error {
	if j.Ticket == fromInput {
		reading, release := t.interruptible(ctx)
		text, err := readTicket(reading, j.Ticket, t.stdin)
		release()
		if err != nil {
			return err
		}
		j.Ticket = text
	}
	return retryJoin(ctx, t, func(ctx context.Context) error {
		err := j.join(ctx, t)
		// retryJoin ends after the error of a bad ticket, but tries again after statusFailed.
		if strings.HasPrefix(j.Ticket, fromFile) && ctx.Err() == nil && isBadTicket(err) {
			report(t.stderr, err)
			return exitStatus(statusFailed)
		}
		return err
	})
}

// ticketPrefix is the beginning of tickets of all versions.
const ticketPrefix = "elrun"

// nameTicket inserts the flag --ticket before a ticket that follows "join" directly. Otherwise
// kong would treat all flags after the ticket as arguments of the program.
func nameTicket(args []string) []string {
	if len(args) < 2 || args[0] != "join" {
		return args
	}
	// With "--" after it any word is a ticket. Without "--" only a word in the form of a ticket is
	// a ticket, as any other word may be a program.
	first, dashes := args[1], len(args) > 2 && args[2] == "--"
	form, _, dotted := strings.Cut(first, ".")
	switch {
	case first == fromInput, strings.HasPrefix(first, fromFile): // a ticket elsewhere, see readTicket
	case strings.HasPrefix(first, "-"): // a flag
		return args
	case !dashes && !(dotted && isTicketForm(form)):
		return args
	}
	return slices.Concat([]string{"join", "--ticket=" + first}, args[2:])
}

// isTicketForm reports whether s may be the part of a ticket before its first dot: ticketPrefix
// and the number of a version.
func isTicketForm(s string) bool {
	version, ok := strings.CutPrefix(s, ticketPrefix)
	return ok && version != "" && strings.Trim(version, "0123456789") == ""
}
