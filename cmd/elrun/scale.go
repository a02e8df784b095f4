package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/elrun/elrun/launch"
)

// scaleCommand is elrun scale. Kong would end a list of arguments at the first flag after
// it: these are two, so that flags may stand anywhere.
type scaleCommand struct {
	Elrun int    `placeholder:"PID" help:"Process ID of the elrun, if several have peers of the job here."`
	Job   string `arg:"" name:"job" help:"Name of the job, or its beginning; may be left out if there is only one."`
	N     string `arg:"" optional:"" name:"n" help:"Number of the job's peers that the elrun is to have on this host."`
}

// Run changes the number of peers and says what happens.
func (c *scaleCommand) Run(ctx context.Context, t *terminal) error {
	name, n, err := c.parse()
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\nusage: elrun scale [JOB] N [--elrun PID]\n", err)
		return exitStatus(statusUsage)
	}
	job, err := launch.Find(ctx, name)
	if err != nil {
		return err
	}
	text, err := job.Scale(ctx, n, c.Elrun)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, text)
	return err
}

// parse reads "[JOB] N": a single argument is the number.
func (c *scaleCommand) parse() (job string, n int, err error) {
	job, number := c.Job, c.N
	if number == "" {
		job, number = "", c.Job
	}
	if n, err = strconv.Atoi(number); err != nil {
		return "", 0, fmt.Errorf("number of peers %q: want a number", number)
	}
	if n < 1 {
		return "", 0, fmt.Errorf("%d peers: want at least 1, or end the job by elrun stop", n)
	}
	return job, n, nil
}
