// Elrun starts the peers of a data-parallel training job on this host, connects them and forwards
// their output:
//
//	elrun -n 4 ./train --lr 0.1
//
// It also lets peers join a running job (ticket, join), evicts a peer (kick), changes the number
// of peers (scale), shows jobs (ps, status, top), ends them (stop), measures collective calls (bench)
// and checks the requirements of jobs (doctor). elrun --help lists all commands and flags.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// Exit statuses of elrun itself; all other statuses come from launch.Result.
const (
	statusFailed = 1 // the command or the job failed
	statusUsage  = 2 // wrong command line; nothing was started
)

// commands declares the subcommands and their flags for kong. Hidden commands are for elrun itself,
// which starts them on other hosts (agent), as the program of a job (bench-peer), or whose programs start it (sidecar), and for packages (man-pages).
type commands struct {
	Run        runCommand        `cmd:"" default:"withargs" help:"Start N peers of PROGRAM (the default command)."`
	Ps         psCommand         `cmd:"" help:"List your jobs on this host."`
	Status     statusCommand     `cmd:"" help:"Show the members of a job."`
	Top        topCommand        `cmd:"" help:"Show a job, or all of them, in the terminal while they run."`
	Report     reportCommand     `cmd:"" help:"Tell what a job was, from its event logs."`
	Dashboard  dashboardCommand  `cmd:"" help:"Show a job in a browser, and act on it there."`
	Join       joinCommand       `cmd:"" help:"Start N peers of PROGRAM that join a running job."`
	Ticket     ticketCommand     `cmd:"" help:"Print a ticket, with which peers join a job from anywhere."`
	Kick       kickCommand       `cmd:"" help:"Put a peer out of a job for good, and revoke its ticket."`
	Scale      scaleCommand      `cmd:"" help:"Change the number of a job's peers on this host."`
	Checkpoint checkpointCommand `cmd:"" help:"Let a job write a checkpoint now, at its next step."`
	Stop       stopCommand       `cmd:"" help:"End a job: its peers leave after the present step."`
	Trace      traceCommand      `cmd:"" help:"Write a trace of a job for Perfetto, from its event logs."`
	Bench      benchCommand      `cmd:"" help:"Measure and check a collective call."`
	Doctor     doctorCommand     `cmd:"" help:"Try out what jobs need here, with advice."`
	Bootstrap  bootstrapCommand  `cmd:"" help:"Run a node of the table by which --dht finds members."`
	K8s        k8sCommand        `cmd:"" name:"k8s" help:"Print the Kubernetes manifest of a job."`
	Completion completionCommand `cmd:"" help:"Print the script that completes command lines of elrun in a shell."`
	Version    versionCommand    `cmd:"" help:"Print the version of elrun, of Go, and the system."`
	Help       helpCommand       `cmd:"" help:"Show the flags of a command."`
	BenchPeer  benchPeerCommand  `cmd:"" hidden:"" help:"One peer of bench."`
	Sidecar    sidecarCommand    `cmd:"" hidden:"" help:"The peer of a program in another language, which starts it."`
	Man        manCommand        `cmd:"" name:"man-pages" hidden:"" help:"Write manual pages in roff."`
	Agent      agentCommand      `cmd:"" hidden:"" help:"Start peers for an elrun on another host, which speaks on standard input."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version, as the command does."`
}

// exitStatus is an error that ends a command with a status. Its reason has been printed already:
// peers failed, or a signal came.
type exitStatus int

// Error implements error for errors.As; its text is not printed.
func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// terminal has the output files of a command, its input and its signals. It is an argument of
// commands instead of global state, so that tests run several commands in one process.
type terminal struct {
	stdout, stderr *os.File
	stdin          *os.File // for tickets and keys that an argument names -, and for peers; may be nil
	signals        <-chan os.Signal
}

// interruptible returns a context that a signal cancels, with the exit status for the signal as
// the cause. It consumes all signals until release is called, which waits for its goroutine.
func (t *terminal) interruptible(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			select {
			case s := <-t.signals:
				t.signalled(s, cancel)
			case <-ctx.Done():
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		work.Wait()
	}
}

// signalled cancels a command, or stops this process for SIGTSTP (Ctrl-Z): since Notify catches the
// signal, the kernel does not stop the process by itself.
func (t *terminal) signalled(s os.Signal, cancel context.CancelCauseFunc) {
	sig, ok := s.(syscall.Signal)
	switch {
	case !ok:
		cancel(exitStatus(statusFailed))
	case sig == syscall.SIGCONT: // the kernel has continued this process already
	case sig == syscall.SIGTSTP:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	default:
		// This is the status that a shell reports for a process that the signal has killed.
		cancel(exitStatus(128 + int(sig)))
	}
}

func main() {
	os.Exit(run(os.Args[1:], &terminal{os.Stdout, os.Stderr, os.Stdin, watchSignals()}))
}

// newParser returns the parser of command lines into c. kong calls exit after --help.
func newParser(c *commands, t *terminal, exit func(code int)) (*kong.Kong, error) {
	options := append(decoders(), kong.Name("elrun"), kong.Writers(t.stdout, t.stderr),
		kong.Description("Data-parallel training without a coordinator: starts peers that find each other."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Exit(exit),
		kong.BindTo(context.Background(), (*context.Context)(nil)), kong.Bind(t), kong.Vars{"version": thisVersion()})
	return kong.New(c, options...)
}

// run executes a command line and returns the exit status. kong only parses; printing errors and
// choosing the status happens here, because scripts rely on the statuses.
func run(args []string, t *terminal) int {
	exited := -1
	var c commands
	parser, err := newParser(&c, t, func(code int) { exited = code })
	if err != nil {
		return report(t.stderr, err)
	}
	if err := checkProgramName(args, commandNames(parser)); err != nil {
		fmt.Fprintf(t.stderr, "elrun: %s\n", printable.Line(err.Error()))
		return statusUsage
	}
	// Parse returns even after --help. In this case exited has the status.
	k, err := parser.Parse(nameTicket(args))
	if exited >= 0 { // --help, --version
		return exited
	}
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\nusage: elrun %s\n", err, usageOf(err))
		return statusUsage
	}
	return report(t.stderr, k.Run())
}

// usageOf returns the usage of the command that a wrong command line names.
func usageOf(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) {
		if c := wrong.Context.Selected(); c != nil && c.Name != "run" {
			return fmt.Sprintf("%s; elrun help %s shows all", c.Summary(), c.Name)
		}
	}
	return "[run] [flags] [--] PROGRAM [ARGS...]; elrun --help shows all"
}

// report prints an error and returns its exit status.
func report(w io.Writer, err error) int {
	var s exitStatus
	switch {
	case err == nil:
		return 0
	// The command has printed the reason itself, and the error only carries the status.
	case errors.As(err, &s):
		return int(s)
	}
	fmt.Fprintf(w, "elrun: %s\n", printable.Line(strings.TrimPrefix(err.Error(), "launch: ")))
	if errors.Is(err, launch.ErrOptions) {
		return statusUsage
	}
	return statusFailed
}
