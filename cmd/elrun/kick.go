package main

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// kickCommand is the command elrun kick [JOB] PEER.
type kickCommand struct {
	Job  string `arg:"" help:"Name of the job, or its beginning; may be left out if there is only one."`
	Peer string `arg:"" optional:"" help:"The peer: its ID, as elrun status shows it, or its index if no other peer has it."`
}

// Run evicts a peer from a job, revokes the tickets that go with it, and prints the outcome.
func (k *kickCommand) Run(ctx context.Context, t *terminal) error {
	// A single argument is the peer: the job is then the only one on this host.
	name, peer := k.Job, k.Peer
	if peer == "" {
		name, peer = "", k.Job
	}
	job, err := launch.Find(ctx, name)
	if err != nil {
		return err
	}
	text, err := job.Kick(ctx, peer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "job %s: %s\n", job.Name(), printable.Line(text))
	return err
}
