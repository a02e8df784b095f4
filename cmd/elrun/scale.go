package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/elrun/elrun/launch"
)

// scaleCommand is the command elrun scale. The two arguments are separate fields, because after a
// list of arguments kong would not accept flags.
type scaleCommand struct {
	Elrun int    `placeholder:"PID" help:"Process ID of the elrun, if several have peers of the job here."`
	Job   string `arg:"" name:"job" help:"Name of the job, or its beginning; may be left out if there is only one."`
	N     string `arg:"" optional:"" name:"n" help:"Number of peers that the elrun is to have, or HOST:N for those on a host of a job that was started with -H; a host that it does not have yet is added."`
}

// Run changes the number of peers and prints the outcome.
func (s *scaleCommand) Run(ctx context.Context, t *terminal) error {
	name, h, err := s.parse()
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\nusage: elrun scale [JOB] N|HOST:N [--elrun PID]\n", err)
		return exitStatus(statusUsage)
	}
	job, err := launch.Find(ctx, name)
	if err != nil {
		return err
	}
	scale := func() (string, error) { return job.Scale(ctx, h.Slots, s.Elrun) }
	if h.Name != "" {
		scale = func() (string, error) { return job.ScaleHost(ctx, h, s.Elrun) }
	}
	text, err := scale()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, text)
	return err
}

// parse interprets the arguments "[JOB] N" or "[JOB] HOST:N"; a single argument is the last one.
// h.Name is empty without a host; h.Slots is then the number of peers of the whole elrun.
func (s *scaleCommand) parse() (job string, h launch.Host, err error) {
	job, last := s.Job, s.N
	if last == "" {
		job, last = "", s.Job
	}
	number, onHost := last, false
	// The last colon separates host and number, because an IPv6 address, in
	// brackets or not, has colons, too.
	if i := strings.LastIndexByte(last, ':'); i >= 0 {
		h.Name, number, onHost = strings.NewReplacer("[", "", "]", "").Replace(last[:i]), last[i+1:], true
	}
	if h.Slots, err = strconv.Atoi(number); err != nil {
		return "", h, fmt.Errorf("number of peers %q: want a number, or HOST:N", last)
	}
	switch {
	case onHost && h.Name == "":
		return "", h, fmt.Errorf("%q: want a host before the colon", last)
	case h.Slots < 1 && !onHost:
		// A host may have 0 peers, but an elrun without peers would end.
		return "", h, fmt.Errorf("%d peers: want at least 1, or end the job by elrun stop", h.Slots)
	case h.Slots < 0:
		return "", h, fmt.Errorf("%d peers on host %s: want 0 or more", h.Slots, h.Name)
	}
	return job, h, nil
}
