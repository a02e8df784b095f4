package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/launch"
)

// joinCommand is elrun join.
type joinCommand struct {
	Ticket string `placeholder:"TICKET" help:"The job to join, as elrun ticket prints it; may stand before the flags, without a name."`
	jobFlags
}

// Run starts peers that join a running job, and waits for their end.
func (c *joinCommand) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, func(o *launch.Options) { o.Join, o.Ticket = true, c.Ticket })
}

// ticketPrefix is how all tickets begin, in every version.
const ticketPrefix = "elrun"

// nameTicket gives a ticket that follows "join" its flag: kong would take all that comes
// after it for the program's.
func nameTicket(args []string) []string {
	if len(args) < 2 || args[0] != "join" {
		return args
	}
	dashes := len(args) > 2 && args[2] == "--"
	if form, _, ok := strings.Cut(args[1], "."); !dashes && !(ok && isTicketForm(form)) || strings.HasPrefix(args[1], "-") {
		return args
	}
	return slices.Concat([]string{"join", "--ticket=" + args[1]}, args[2:])
}

// isTicketForm reports whether a ticket may begin so, before its first dot: elrun and the
// number of a version.
func isTicketForm(s string) bool {
	version, ok := strings.CutPrefix(s, ticketPrefix)
	return ok && version != "" && strings.Trim(version, "0123456789") == ""
}

// ticketCommand is elrun ticket.
type ticketCommand struct {
	Job   string        `arg:"" optional:"" help:"Name of the job; may be left out if there is only one."`
	Valid time.Duration `default:"24h" placeholder:"D" help:"How long the ticket holds (${default})."`
}

// Run prints a ticket.
func (c *ticketCommand) Run(ctx context.Context, t *terminal) error {
	k, err := launch.IssueTicket(ctx, c.Job, c.Valid)
	if err != nil {
		return err
	}
	if k.Note != "" {
		fmt.Fprintf(t.stderr, "elrun: job %s: %s\n", k.Job, k.Note)
	}
	_, err = fmt.Fprintln(t.stdout, k.Text)
	return err
}

// scaleCommand is elrun scale.
type scaleCommand struct {
	Elrun int      `placeholder:"PID" help:"Process ID of the elrun, if several have peers of the job here."`
	Args  []string `arg:"" name:"[job] n" help:"Name of the job, which may be left out if there is only one, and the number of peers."`
}

// Run changes the number of peers and says what happens.
func (c *scaleCommand) Run(ctx context.Context, t *terminal) error {
	job, n, err := c.parse()
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\nusage: elrun scale [JOB] N\n", err)
		return exitStatus(statusUsage)
	}
	text, err := launch.Scale(ctx, job, n, c.Elrun)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, text)
	return err
}

// parse reads "[JOB] N".
func (c *scaleCommand) parse() (job string, n int, err error) {
	if len(c.Args) > 2 {
		return "", 0, fmt.Errorf("unexpected argument %s", c.Args[2])
	}
	if len(c.Args) == 2 {
		job = c.Args[0]
	}
	number := c.Args[len(c.Args)-1] // kong wants one at least
	if n, err = strconv.Atoi(number); err != nil {
		return "", 0, fmt.Errorf("number of peers %q: want a number", number)
	}
	return job, n, nil
}
