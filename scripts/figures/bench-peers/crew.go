package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runLimit is the time after which a hanging side is ended.
const runLimit = 5 * time.Minute

// crew is the set of running commands of a side. When one command fails, crew ends the others,
// because they would wait for it.
type crew struct {
	cancel  context.CancelFunc
	outputs []*bytes.Buffer
	ended   chan error
}

// newCrew returns a crew for at most limit commands. cancel must cancel the context of the
// commands.
func newCrew(limit int, cancel context.CancelFunc) *crew {
	return &crew{cancel: cancel, ended: make(chan error, limit)}
}

// start starts a command; wait waits for it.
func (c *crew) start(cmd *exec.Cmd) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	// On SIGTERM elrun and mpirun end their peers. A command that does not end is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	c.outputs = append(c.outputs, &out)
	if err := cmd.Start(); err != nil {
		c.ended <- err
		return
	}
	go func() { c.ended <- explain(cmd, cmd.Wait(), complaint.String()) }()
}

// wait waits until all commands have ended. It returns the results that they have printed, one for each size.
func (c *crew) wait(sizes []int) ([]result, error) {
	var first error
	for range c.outputs {
		if err := <-c.ended; err != nil && first == nil {
			first = err // later errors are a consequence of the first
			c.cancel()
		}
	}
	if first != nil {
		return nil, first
	}
	var out []result
	var got []int
	for _, text := range c.outputs {
		results, err := parse(text)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			out, got = append(out, r), append(got, r.Bytes)
		}
	}
	if !slices.Equal(got, sizes) {
		return nil, fmt.Errorf("results for the sizes %v, want %v", got, sizes)
	}
	return out, nil
}

// explain adds the command and the end of its error output to the error of the command.
func explain(cmd *exec.Cmd, err error, complaint string) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(complaint), "\n")
	return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.Join(lines[max(0, len(lines)-6):], "\n"))
}
