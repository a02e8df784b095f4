package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/cmd/elrun/top"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// topCommand is the command elrun top.
type topCommand struct {
	Job  string `arg:"" optional:"" help:"Name of the job, or its beginning; default: the only one, or a list of all."`
	Once bool   `help:"Print one frame, as without a terminal."`
	JSON bool   `name:"json" help:"Print a snapshot as a line of JSON each second until the job ends; with --once one."`
}

// Run shows jobs until the user ends it.
func (t *topCommand) Run(ctx context.Context, at *terminal) error {
	name := ""
	job, err := launch.Find(ctx, t.Job)
	switch {
	case err == nil:
		name = job.Name()
	case t.Job != "" || t.JSON || !errors.Is(err, launch.ErrWhichJob):
		return err
	}
	ctx, release := at.interruptible(ctx)
	defer release()
	m := top.New(time.Local)
	m.ASCII = !hasUnicode(os.Getenv)
	dumb := !movesCursor(os.Getenv("TERM"))
	if !t.Once && !t.JSON && !dumb && isTerminal(at.stdout) && isTerminal(at.stdin) {
		return top.Run(ctx, running{}, name, m)
	}
	o := top.Output{JSON: t.JSON, Once: t.Once || !isTerminal(at.stdout), Width: 80, Height: 24}
	if t.JSON {
		o.Once = t.Once
	}
	if size, err := unix.IoctlGetWinsize(int(at.stdout.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		o.Width = int(size.Col)
	}
	return top.Print(ctx, at.stdout, running{}, name, m, o)
}

// running tells of the jobs that run on this host.
type running struct{}

// Jobs implements top.Source.
func (running) Jobs(ctx context.Context) ([]launch.Status, error) { return launch.Jobs(ctx) }

// Watch implements top.Source.
func (running) Watch(ctx context.Context, name string) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		job, err := launch.Find(ctx, name)
		if err == nil && job.Name() != name { // another job whose name begins so
			err = fmt.Errorf("%w: %s", launch.ErrNoJob, name)
		}
		if err != nil {
			yield(timeline.Snapshot{}, err)
			return
		}
		job.Watch(ctx)(yield)
	}
}

// Last implements top.Source.
func (running) Last(ctx context.Context, name string) (launch.Status, error) {
	return launch.LastStatus(ctx, name)
}

// movesCursor reports whether a type of terminal can draw over what it shows.
func movesCursor(kind string) bool { return kind != "" && kind != "dumb" }

// hasUnicode reports whether the locale of an environment has the characters of sparklines. One that is not set does: then nobody
// has said which.
func hasUnicode(getenv func(string) string) bool {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return getenv("TERM") != "dumb" && (locale == "" || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8"))
}
