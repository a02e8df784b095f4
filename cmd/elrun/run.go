package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/internal/scheduler"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/launch/spec"
)

// jobFlags configure the peers that elrun run and elrun join start. The first word that is no
// flag is the program. All words after it are the program's arguments, even if they look like
// flags of elrun.
type jobFlags struct {
	Peers peerCount `name:"np" short:"n" placeholder:"N" help:"Peers on this host (default: number of cores)."`
	Name  string    `placeholder:"JOB" help:"Name of the job (default: made from the program's name)."`
	groupFlags
	networkFlags
	Events        string   `placeholder:"FILE" help:"Write the peers' events there, one JSON object a line; - is standard error."`
	NoArgs        bool     `help:"Leave the program's arguments out of the events, as they may have passwords."`
	On            []string `sep:"none" placeholder:"EVENTS=CMD" help:"Run a shell command when one of these events comes, with its line on standard input, as in lost,stall=CMD. May be given several times."`
	Metrics       string   `placeholder:"ADDR" help:"Serve the figures of the job to Prometheus at this address, as in :9464; the path is /metrics."`
	Dashboard     pageFlag `placeholder:"ADDR" help:"Show the job in a browser: print the link of its page. --dashboard=HOST:PORT chooses where it is served."`
	Log           string   `placeholder:"DIR" help:"Write the figures of each step to this folder: for TensorBoard, and as a table, steps.csv."`
	Trace         string   `placeholder:"FILE" help:"Write a trace of the job to this file, as in run.pftrace, which https://ui.perfetto.dev shows: what each peer does in each step."`
	Record        string   `placeholder:"DIR" help:"When a call stalls, a peer is lost or its process fails, write the last calls of all peers here, for elrun doctor --read."`
	PreemptNotice string   `placeholder:"CMD|FILE" help:"Let these peers leave, with nothing lost, when the notice comes that this machine is about to be taken away: when an absolute path FILE appears, when a shell command CMD ends with status 0, or as aws, gcp or azure tell their spot machines."`
	Audit         float64  `placeholder:"RATE" help:"Let each peer compute another peer's part again in this fraction of the steps, and put out a peer whose result is wrong; the program must read ELRUN_AUDIT, as bin/mnist --exact does."`
	dhtFlags
	schedulerFlags
	Grace   *time.Duration `placeholder:"D" help:"How long peers that are asked to end may take, as for a last checkpoint on a slow disk, before they are killed (default: 10s; 25s with --preempt-notice, 50s with --discover)."`
	LogDir  string         `placeholder:"DIR" help:"Write each peer's output to DIR/INDEX.log as well."`
	Program []string       `arg:"" passthrough:"all" help:"Program and its arguments."`
}

// Validate implements kong's validation: its errors are usage errors.
func (j *jobFlags) Validate() error {
	var audit error
	if !(j.Audit >= 0 && j.Audit <= 1) { // the condition is also true for NaN
		audit = fmt.Errorf("--audit %v: want a fraction of the steps, 0 to 1", j.Audit)
	}
	var unknown error
	if len(j.Program) > 0 && j.Program[0] != "--" && strings.HasPrefix(j.Program[0], "-") { // kong takes it for the program
		unknown = fmt.Errorf("unknown flag %s", j.Program[0])
	}
	return cmp.Or(unknown, j.groupFlags.check(), checkGrace(j.Grace), audit, j.dhtFlags.check())
}

// checkGrace returns an error for a bad value of --grace, which is nil if it is not given.
func checkGrace(d *time.Duration) error {
	if d != nil && *d <= 0 {
		return fmt.Errorf("--grace %v: want more than 0, as in 30s or 5m", *d)
	}
	return nil
}

// run starts the peers, with options that change has completed, and waits for their end.
func (j *jobFlags) run(ctx context.Context, t *terminal, change func(*launch.Options)) error {
	o, err := j.options(t, change)
	if err != nil {
		return err
	}
	// The event log is opened before a peer starts, so that no events of the start are lost.
	events, closeEvents, err := openEvents(j.Events, t.stderr)
	if err != nil {
		return err
	}
	defer closeEvents()
	o.Output.Events = events
	if j.Events != "" && j.Events != "-" {
		o.Output.EventsPath, _ = filepath.Abs(j.Events) // without a working folder nobody can say where it is
	}
	closePage, err := j.Dashboard.serve(&o, t)
	if err != nil {
		return err
	}
	defer closePage()
	defer quitter{o.Job, j.Record, t.stderr}.wait()()
	return finish(launch.Run(ctx, o))
}

// options returns the options of the job, but for what is to be opened: the event log and the page.
func (j *jobFlags) options(t *terminal, change func(*launch.Options)) (o launch.Options, err error) {
	program := j.Program
	if len(program) > 0 && program[0] == "--" {
		program = program[1:]
	}
	if len(program) == 0 {
		fmt.Fprintln(t.stderr, "elrun: no program given\nusage: elrun [run] [flags] [--] PROGRAM [ARGS...]")
		return o, exitStatus(statusUsage)
	}
	hooks, err := j.hooks()
	if err != nil {
		return o, err
	}
	o = launch.Options{
		Program: program[0], Args: program[1:], Peers: j.Peers.orCores(), Job: j.Name,
		Network: j.network(), Membership: j.membership(),
		Output: launch.Output{Stdout: t.stdout, Stderr: t.stderr, Live: isTerminal(t.stderr) && j.Events != "-" && os.Getenv("TERM") != "dumb", ASCII: !hasUnicode(os.Getenv),
			LogDir: j.LogDir, HideArgs: j.NoArgs, Hooks: hooks, Metrics: j.Metrics, Scalars: j.Log, Trace: j.Trace, Records: j.Record},
		Signals: t.signals}
	switch {
	case j.Grace != nil:
		o.Grace = *j.Grace
	case j.PreemptNotice != "":
		o.Grace = preemptGrace
	}
	j.dhtFlags.add(&o)
	// change is called after the flags are set, so that a task, --discover and join can override
	// them.
	change(&o)
	if j.Audit > 0 {
		o.Forward = append(o.Forward, fmt.Sprintf("ELRUN_AUDIT=%v", j.Audit))
	}
	if o.Job == "" && !o.Join {
		o.Job = spec.JobName(o.Program, strings.ToLower(rand.Text()[:5])) // for what finds the job by its name
	}
	return o, nil
}

// hooks returns the hooks of --on.
func (j *jobFlags) hooks() (all []launch.Hook, err error) {
	for _, text := range j.On {
		h, err := launch.ParseHook(text)
		if err != nil {
			return nil, fmt.Errorf("%w: --on: %w", launch.ErrOptions, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// runCommand is the command elrun run.
type runCommand struct {
	hostFlags
	discoverFlags
	Rendezvous string `placeholder:"DIR" help:"Folder that the hosts share, by which the tasks of srun find each other (default: the working folder)."`
	Stdin      string `enum:"all,none,0" default:"0" placeholder:"WHO" help:"Peers that get the standard input: 0 (the peer of rank 0), all, or none (${default})."`
	jobFlags
}

// Validate implements kong's validation: its errors are usage errors.
func (r *runCommand) Validate() error {
	if r.Discover != "" && (r.Hosts != nil || r.Hostfile != nil) {
		return errors.New("--discover does not go with -H or --hostfile: find the hosts in one way")
	}
	return cmp.Or(r.jobFlags.Validate(), r.discoverFlags.Validate())
}

// Run starts the job, or its part of it, and waits for the end.
func (r *runCommand) Run(ctx context.Context, t *terminal) error {
	env, err := r.exported()
	task, wrong := r.task()
	if err = cmp.Or(err, wrong); r.Hosts != nil || r.Hostfile != nil || r.Discover != "" {
		task = nil // explicit flags take precedence over the batch system
	}
	var hosts []launch.Host
	var srun bool
	// A task of a Slurm step runs its own peers only, and with --discover each host has its own
	// launcher. In both cases this launcher starts no peers on other hosts.
	if err == nil && task == nil && r.Discover == "" {
		hosts, srun, err = r.chooseHosts(t, &r.sshFlags, &r.Peers)
	}
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\n", err)
		return exitStatus(statusUsage)
	}
	if r.DryRun && len(hosts) == 0 {
		fmt.Fprintln(t.stderr, "elrun: --dry-run goes with -H, --hostfile or the hosts of a batch job: name the hosts")
		return exitStatus(statusUsage)
	}
	reading, ended := context.WithCancel(ctx)
	defer ended()
	// change completes the options of all three ways to run: discovered, as a task, or alone.
	change := func(o *launch.Options) {
		r.add(o, hosts, env, int(r.Peers))
		o.Remote.Srun = srun
		o.Input = r.input(reading, t, task)
	}
	if r.DryRun {
		return r.dryRun(ctx, t, change)
	}
	return r.preemptible(ctx, t, func(ctx context.Context) error {
		switch {
		case r.Discover != "":
			return r.discovered(ctx, t, change)
		case task != nil:
			return r.inTask(ctx, t, task, change)
		}
		return r.run(ctx, t, change)
	})
}

// input returns the standard input of the peers. Of several launchers, only the one that begins the
// job has the peer of rank 0; with --discover nobody knows beforehand which one this is. ctx ends
// the reading of a terminal.
func (r *runCommand) input(ctx context.Context, t *terminal, task *scheduler.Task) launch.Input {
	others := r.Discover != "" || task != nil && task.Rank > 0
	if t.stdin == nil || r.Stdin == "none" || r.Stdin == "0" && others {
		return launch.Input{}
	}
	in := launch.Input{Stdin: t.stdin, All: r.Stdin == "all"}
	// The kernel stops a peer that reads the terminal, because only the process group of elrun is in
	// the foreground.
	if isTerminal(t.stdin) {
		in.Stdin = &interruptibleReader{ctx, t.stdin}
	}
	return in
}

// peerCount is the value of a flag with a number of peers; 0 if it is not given.
type peerCount int

// Decode implements kong's decoding: its errors are usage errors. It uses Pop because PopValue
// would treat a negative number as a flag. kong reads the flag -np of mpirun as -n with the value p.
func (p *peerCount) Decode(ctx *kong.DecodeContext) error {
	text, _ := ctx.Scan.Pop().Value.(string) // "" if the value is missing
	if rest, ok := strings.CutPrefix(text, "p"); ok {
		if text = strings.TrimPrefix(rest, "="); text == "" {
			text, _ = ctx.Scan.Pop().Value.(string)
		}
	}
	v, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q: want a number of peers", text)
	case v < 1:
		return fmt.Errorf("%d peers: want at least one; without -n elrun starts one for each core", v)
	}
	*p = peerCount(v)
	return nil
}

// orCores returns the given number, or the number of cores.
func (p peerCount) orCores() int {
	if p == 0 {
		return cores.Count()
	}
	return int(p)
}

// finish returns the error of a command for the end of its job. launch has printed why the job
// failed, so an exit status without a text is enough.
func finish(r launch.Result, err error) error {
	if err == nil && r.Status != 0 {
		return exitStatus(r.Status)
	}
	return err
}

// openEvents opens the event log of --events, and returns the function that closes it. launch
// reports failed writes and continues.
func openEvents(name string, stderr io.Writer) (io.Writer, func(), error) {
	switch name {
	case "":
		return nil, func() {}, nil
	case "-":
		return stderr, func() {}, nil
	}
	// Each write appends, so that launchers that share the file do not overwrite each other's
	// lines.
	f, err := private.Append(name)
	if err == nil {
		err = beginLog(f)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("event log: %w", err)
	}
	return f, func() { _ = f.Close() }, nil // launch has reported failed writes
}

// beginLog truncates an event log, unless another running launcher writes to the log: then both
// append. Each writer holds a shared lock (flock) on the file, so an exclusive lock succeeds only
// if no other launcher writes to the file.
func beginLog(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	fd := int(f.Fd())
	alone := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
	if alone {
		err = f.Truncate(0)
	}
	// An error is ignored: on a file system without locks every launcher appends, and the log is
	// never truncated.
	_ = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	return err
}

// isTerminal reports whether f is a terminal: only terminals have a window size. On a terminal
// elrun overwrites its line of progress; elsewhere it prints whole lines.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
