package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// doctorCommand is the command elrun doctor. It has five forms: without arguments it checks this
// host, with -H or --hostfile other hosts and the connections between them, and with a member or
// a ticket the path to a job. With --record it takes the records of a job's calls, and with --read it reads them.
type doctorCommand struct {
	Member string   `arg:"" optional:"" placeholder:"HOST:PORT|TICKET|JOB" help:"Try out the way from here to a peer of a running job, or to all that a ticket names, in place of this host. - reads the ticket from standard input and @FILE from a file. With --record the name of a job."`
	Record string   `placeholder:"DIR" xor:"record" help:"Write the last calls of the job's peers into this directory, with their goroutines and what is known of peers that do not answer, and name the peer that holds the others up."`
	Read   []string `placeholder:"DIR" xor:"record" help:"Name the peer that holds the others up, by the records in this directory. Of a job on several hosts, repeat it with a directory of each."`
	JSON   bool     `name:"json" help:"One JSON array of the checks; with --record and --read one JSON object."`
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
	records := d.Record != "" || len(d.Read) > 0
	switch {
	case d.Member != "" && len(hosts) > 0, records && len(hosts) > 0:
		fmt.Fprintln(t.stderr, "elrun: -H does not go with a peer, a ticket or records: name one of them")
		return exitStatus(statusUsage)
	case d.Member != "" && len(d.Read) > 0:
		fmt.Fprintln(t.stderr, "elrun: --read does not go with a job: it reads files only")
		return exitStatus(statusUsage)
	}
	ctx, release := t.interruptible(ctx)
	defer release()
	if records {
		return d.judge(ctx, t)
	}
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
	return d.writeChecks(t.stdout, checks)
}

// writeChecks prints a line for each check. It returns an error if one has failed.
func (d *doctorCommand) writeChecks(to io.Writer, checks []launch.Check) error {
	if d.JSON {
		if err := writeJSON(to, checks); err != nil {
			return err
		}
	}
	failed := false
	for _, check := range checks {
		// Warnings do not fail the command: jobs run in spite of them, although possibly more
		// slowly.
		failed = failed || check.Level == launch.Fail
		if d.JSON {
			continue
		}
		if _, err := fmt.Fprintln(to, printable.Line(check.String())); err != nil {
			return err
		}
	}
	if failed {
		return exitStatus(statusFailed)
	}
	return nil
}

// judge takes the records of a job, or reads them, and prints what they tell.
func (d *doctorCommand) judge(ctx context.Context, t *terminal) error {
	v, err := d.finding(ctx)
	switch {
	case err != nil:
		return err
	case d.JSON:
		return writeJSON(t.stdout, v)
	}
	text := printable.Line(v.Text) + "\n"
	if len(d.Read) > 0 && v.Stacks != "" {
		text += "\n"
		for line := range strings.Lines(strings.ReplaceAll(v.Stacks, "\t", "    ")) {
			text += printable.Line(strings.TrimSuffix(line, "\n")) + "\n"
		}
	}
	_, err = io.WriteString(t.stdout, text)
	return err
}

// finding returns what the records tell.
func (d *doctorCommand) finding(ctx context.Context) (flight.Finding, error) {
	if len(d.Read) > 0 {
		return launch.ReadRecords(d.Read...)
	}
	job, err := launch.Find(ctx, d.Member)
	if err != nil {
		return flight.Finding{}, err
	}
	return job.Record(ctx, d.Record, "elrun doctor")
}
