package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/event"
)

// Options say what Run starts and where its output goes.
type Options struct {
	Program   string   // a path, or a name to be found in PATH
	Args      []string // without the program's name
	Peers     int      // processes, at least 1
	Job       string   // name of the job; "" makes one from Program
	Transport string   // auto (also "") or p2p

	Stdout, Stderr io.Writer // nil discards
	Live           bool      // Stderr is a terminal: show a progress line there
	Plain          bool      // no prefix on lines of output
	Events         io.Writer // takes the events of all peers, one JSON object a line; nil for none
	LogDir         string    // gets a file INDEX.log for each peer, besides the output; "" for none

	// Signals are passed on to the peers; the second one kills them.
	Signals <-chan os.Signal
	// Grace is how long the peers may take to end after a signal; 0 means 10 s.
	Grace time.Duration
}

// Result says how a job ended.
type Result struct {
	Job    string
	Exits  []Exit      // in the order in which they were seen to end
	Done   *event.Done // the job's result, if its peers reported one
	Status int         // exit status for the launcher: 0, 1, or 128 + signal
}

// defaultGrace is the Grace of Options that name none.
const defaultGrace = 10 * time.Second

// Run starts the peers of a job, connects them, passes on their output and returns
// when all have ended. No process that it started, and none of their process groups,
// outlives it. An error says that the job could not be started: a bad option, or a
// program that cannot be run; how the program fared is in the Result.
//
// The end of ctx counts as SIGTERM.
func Run(ctx context.Context, o Options) (Result, error) {
	path, err := o.complete()
	if err != nil {
		return Result{}, err
	}
	// The death signal of children comes when the thread ends that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &runner{o: o, meet: newMeeting(o.Peers), notices: make(chan notice),
		children: make([]*child, o.Peers), result: Result{Job: o.Job}}
	r.console = newConsole(o.Stdout, o.Stderr, o.Events, o.Live)
	if err := r.start(path); err != nil {
		r.signal = syscall.SIGKILL // the deaths that follow are no news
		r.killAll()
		r.loop(ctx)
		r.console.close("", consolePatience)
		return Result{}, err
	}
	r.loop(ctx)
	r.finish()
	return r.result, nil
}

// complete checks the options, fills in defaults and finds the program.
func (o *Options) complete() (path string, err error) {
	if o.Peers < 1 || o.Peers > maxPeers {
		return "", fmt.Errorf("launch: %w: %d peers, want 1 to %d", ErrOptions, o.Peers, maxPeers)
	}
	if o.Transport == "" {
		o.Transport = "auto"
	}
	if err := validTransport(o.Transport); err != nil {
		return "", fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	if path, err = findProgram(o.Program); err != nil {
		return "", err
	}
	if err := o.name(); err != nil {
		return "", err
	}
	if o.LogDir != "" {
		if err := os.MkdirAll(o.LogDir, 0o755); err != nil {
			return "", fmt.Errorf("launch: log directory: %w", err)
		}
	}
	for _, w := range []*io.Writer{&o.Stdout, &o.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	return path, nil
}

// name makes the job's name, or checks that the given one is free.
func (o *Options) name() error {
	if o.Job == "" {
		o.Job = jobName(o.Program, strings.ToLower(rand.Text()[:5]))
		return nil
	}
	if err := validJob(o.Job); err != nil {
		return fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	// Two jobs that start under one name at the same time are not noticed, nor is any
	// where the list cannot be read: then status mixes them, and nothing worse.
	used, _ := listControls()
	if slices.ContainsFunc(used, func(n socketName) bool { return n.job == o.Job }) {
		return fmt.Errorf("launch: %w: a job named %s is running already", ErrOptions, o.Job)
	}
	return nil
}

// start starts all processes, one after the other: that takes a millisecond each, and
// signals wait in their channel meanwhile. On an error some may run.
func (r *runner) start(path string) error {
	for i := range r.children {
		cmd := exec.Command(path, r.o.Args...)
		cmd.Args[0] = r.o.Program
		cmd.Env = childEnvironment(os.Environ(), environment{job: r.o.Job, index: i, peers: r.o.Peers,
			fd: childFD, transport: r.o.Transport})
		c, err := startChild(i, cmd, r.o.LogDir)
		if err != nil {
			return startError(r.o.Program, err)
		}
		r.children[i] = c
		r.running++
		r.work.Go(func() { c.supervise(r.console, r.o.Plain, r.notices) })
	}
	return nil
}

var (
	// ErrOptions: an option has a value that cannot be used.
	ErrOptions = errors.New("bad option")
	// errDisagree: peers report different results.
	errDisagree = errors.New("peers report different results")
)
