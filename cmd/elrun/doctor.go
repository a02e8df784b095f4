package main

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// doctorCommand is the command elrun doctor. It has three forms: without arguments it checks this
// host, with -H or --hostfile other hosts and the connections between them, and with a member or
// a ticket the path to a job.
type doctorCommand struct {
	Member string `arg:"" optional:"" placeholder:"HOST:PORT|TICKET" help:"Try out the way from here to a peer of a running job, or to all that a ticket names, in place of this host. - reads the ticket from standard input and @FILE from a file."`
	sshFlags
}

// Run checks this host, or hosts and the connections between them, or the path to a peer. It
// prints a line for each check, and fails if a check has failed.
func (d *doctorCommand) Run(ctx context.Context, t *terminal) error {
	hosts, err := d.hosts()
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\n", err)
		return exitStatus(statusUsage)
	}
	if d.Member != "" && len(hosts) > 0 {
		fmt.Fprintln(t.stderr, "elrun: -H does not go with a peer or a ticket: name one of them")
		return exitStatus(statusUsage)
	}
	ctx, release := t.interruptible(ctx)
	defer release()
	var checks []launch.Check
	switch {
	case d.Member != "":
		var target string
		if target, err = readTicket(ctx, d.Member, t.stdin); err == nil {
			checks, err = launch.DoctorMember(ctx, target)
		}
	case len(hosts) > 0:
		checks, err = launch.DoctorHosts(ctx, launch.Remote{Hosts: hosts, SSH: d.SSH, Copy: d.Copy, ConnectTimeout: d.ConnectTimeout})
	default:
		checks = launch.Doctor(ctx)
	}
	// After a signal, the interrupted checks would be reported as failures.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	failed := false
	for _, check := range checks {
		// Warnings do not fail the command: jobs run in spite of them, although possibly more
		// slowly.
		failed = failed || check.Level == launch.Fail
		if _, err := fmt.Fprintln(t.stdout, printable.Line(check.String())); err != nil {
			return err
		}
	}
	if failed {
		return exitStatus(statusFailed)
	}
	return nil
}
