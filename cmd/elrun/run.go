package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/launch"
)

// runCommand is elrun run. Everything after the first word that is no flag belongs to the
// program, flags included.
type runCommand struct {
	Peers     int      `name:"np" short:"n" placeholder:"N" help:"Peers on this host (default: number of cores)."`
	Name      string   `placeholder:"JOB" help:"Name of the job (default: made from the program's name)."`
	Transport string   `enum:"auto,p2p" default:"auto" help:"How data travels: auto or p2p."`
	Events    string   `placeholder:"FILE" help:"Write the peers' events there, one JSON object a line; - is standard error."`
	LogDir    string   `placeholder:"DIR" help:"Write each peer's output to DIR/INDEX.log as well."`
	Program   []string `arg:"" passthrough:"all" help:"Program and its arguments."`
}

// Validate is called by kong; its errors are usage errors.
func (c *runCommand) Validate() error {
	if c.Peers < 0 {
		return fmt.Errorf("-n %d: want at least one peer", c.Peers)
	}
	return nil
}

// Run starts the job and waits for its end.
func (c *runCommand) Run(ctx context.Context, t *terminal) error {
	program := c.Program
	if len(program) > 0 && program[0] == "--" {
		program = program[1:]
	}
	if len(program) == 0 {
		fmt.Fprintln(t.stderr, "elrun: no program given\nusage: elrun [run] [flags] [--] PROGRAM [ARGS...]")
		return exitStatus(statusUsage)
	}
	events, closeEvents, err := openEvents(c.Events, t.stderr)
	if err != nil {
		return err
	}
	defer closeEvents()
	return finish(launch.Run(ctx, launch.Options{
		Program: program[0], Args: program[1:], Peers: peers(c.Peers), Job: c.Name, Transport: c.Transport,
		Stdout: t.stdout, Stderr: t.stderr, Live: isTerminal(t.stderr) && c.Events != "-",
		Events: events, LogDir: c.LogDir, Signals: t.signals}))
}

// peers returns n, or the number of cores for 0.
func peers(n int) int {
	if n == 0 {
		return runtime.NumCPU()
	}
	return n
}

// finish turns the end of a job into that of the command.
func finish(r launch.Result, err error) error {
	if err == nil && r.Status != 0 {
		return exitStatus(r.Status)
	}
	return err
}

// openEvents opens the event log that --events names, and returns what closes it. launch
// reports a failed write itself and goes on.
func openEvents(name string, stderr io.Writer) (io.Writer, func(), error) {
	switch name {
	case "":
		return nil, func() {}, nil
	case "-":
		return stderr, func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, fmt.Errorf("event log: %w", err)
	}
	return f, func() { _ = f.Close() }, nil // each event was written on its own, errors were reported
}

// isTerminal reports whether f is a terminal: it has a window size.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
