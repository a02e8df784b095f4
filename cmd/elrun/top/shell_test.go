package top_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/cmd/elrun/top"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/testing/screen"
)

// roleVariable is the environment variable that makes the binary of these tests an elrun top of a fake.
const roleVariable = "TOP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Bool("update", false, "write the frames into testdata and docs/top.md")
	os.Exit(m.Run())
}

// updating reports whether the files of the tests are to be written.
func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// errGone is the end of a watch.
var errGone = errors.New("no elrun of it runs on this host")

// fake is a source of one job or several.
type fake struct {
	every time.Duration // between two snapshots
	most  int64         // snapshots until the job ends; 0 for no end
	last  *launch.Ended
	panic bool // instead of the second snapshot
}

// Jobs implements Source.
func (fake) Jobs(context.Context) ([]launch.Status, error) { return listed(), nil }

// Watch implements Source.
func (f fake) Watch(ctx context.Context, job string) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		for n := int64(1); n <= f.most || f.most == 0; n++ {
			s := mnist()
			s.Step += n
			if !yield(s, nil) {
				return
			}
			if f.panic {
				panic("a bug\nof two lines")
			}
			select {
			case <-time.After(f.every):
			case <-ctx.Done():
				yield(timeline.Snapshot{}, context.Cause(ctx))
				return
			}
		}
		yield(timeline.Snapshot{}, fmt.Errorf("job %s: %w", job, errGone))
	}
}

// Last implements Source.
func (f fake) Last(context.Context, string) (launch.Status, error) {
	if f.last == nil {
		return launch.Status{}, launch.ErrNoJob
	}
	return launch.Status{Ended: f.last}, nil
}

// play is an elrun top in a role.
func play(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f, job, m := fake{every: 100 * time.Millisecond}, "mnist", top.New(time.UTC)
	switch role {
	case "list":
		job = ""
	case "end":
		f.most, f.last = 1, finished().Ended
		f.last.At = time.Now().Add(time.Hour)
	case "panic in a stream":
		f.panic = true
	case "panic in a frame":
		m = top.New(nil)
	}
	if err := top.Run(ctx, f, job, m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// at runs a role at a terminal.
func at(t *testing.T, role, env string) *screen.Screen {
	t.Helper()
	return screen.New(t, 80, 24, fmt.Sprintf("%s %s='%s' %s", env, roleVariable, role, process.Self(t)))
}

// A person opens a job of the list, makes the window larger, looks around and leaves. The screen shows what the Model draws.
func TestTerminal(t *testing.T) {
	s := at(t, "list", "TERM=xterm-256color")
	s.Until("mnist-boixb 2 running")
	process.Until(t, "the list of jobs as a whole", func() bool { return s.Text() == frames()["jobs"] })
	s.Press("Down", "Enter")
	s.Until("- 6 peers, 1 ended, by W-FOR")
	process.Until(t, "a colour", func() bool { return strings.Contains(s.Styled(), "\x1b[32mRUNNING") })
	s.Resize(200, 60)
	s.Until("REDUCE")
	s.Until("waited for")
	s.Resize(40, 15)
	s.Until("STATE   SHARE SAMP/S W-FOR\n")
	s.Resize(80, 24)
	for _, c := range []struct{ key, shows string }{{"e", "epoch 2 (lost): 2 members"}, {"h", "3 hosts by W-FOR"}, {"?", "choose a row"}, {"Escape", "3 hosts by W-FOR"}, {"l", "117.5"}} {
		s.Press(c.key)
		s.Until(c.shows)
	}
	s.Press("q")
	if status := s.Left(); status != 0 {
		t.Errorf("status %d", status)
	}
	if strings.Contains(s.Text(), "goodput") {
		t.Errorf("left behind:\n%s", s.Text())
	}
}

// Of a new snapshot only the cells that have changed are sent, also without colours.
func TestChangedCells(t *testing.T) {
	s := at(t, "job", "NO_COLOR=1")
	s.Until("goodput")
	path := s.Record()
	step := func() (n int) {
		_, rest, _ := strings.Cut(s.Text(), "step ")
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	first := step()
	const more = 20
	process.Until(t, "further snapshots", func() bool { return step() >= first+more })
	if regexp.MustCompile("\x1b\\[[0-9;]*3[0-7]m").MatchString(s.Styled()) {
		t.Errorf("a colour in %q", s.Styled())
	}
	s.Press("C-c")
	if status := s.Left(); status != 0 {
		t.Errorf("status %d", status)
	}
	sent, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// One frame has 1,400 characters.
	if n := len(sent) / more; n > 200 || n == 0 {
		t.Errorf("%d bytes for each snapshot", n)
	}
}

// A signal and a mistake in this package leave the terminal as it was.
func TestTerminalRestored(t *testing.T) {
	for role, want := range map[string]string{"job": "", "panic in a stream": "a bug", "panic in a frame": "time: missing Location"} {
		t.Run(role, func(t *testing.T) {
			s := at(t, role, "")
			if want == "" {
				s.Until("goodput")
				process.Signal(t, s.PID(), syscall.SIGTERM)
			}
			if status := s.Left(); status != 3 {
				t.Errorf("status %d", status)
			}
			process.Until(t, want, func() bool { return strings.Contains(s.History(), want) })
		})
	}
}

// The last frame of a job that has ended stays in view.
func TestTerminalEnd(t *testing.T) {
	s := at(t, "end", "")
	s.Until("finished with status 0 after")
	s.Until("step 2227/3540")
	s.Press("q")
	if status := s.Left(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// printed returns what Print writes of a job that ends after some snapshots, in virtual time.
func printed(t *testing.T, f fake, job string, o top.Output) (text string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		if f.last != nil {
			f.last.At = time.Now().Add(time.Hour)
		}
		o.Width, o.Height, f.every = 80, 24, time.Second
		err = top.Print(t.Context(), &b, f, job, top.New(time.UTC), o)
		text = b.String()
	})
	return text, err
}

func TestPrint(t *testing.T) {
	text, err := printed(t, fake{most: 12, last: finished().Ended}, "mnist", top.Output{})
	// Frames at 0, 5 and 10 s, and at the end.
	if n := strings.Count(text, "goodput 87%"); err != nil || n != 4 || strings.Contains(text, "q quit") || !strings.HasSuffix(text, "272.6 ms\n") ||
		strings.Count(text, "finished with status 0") != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("%v, %d frames:\n%s", err, n, text)
	}
	if text, err := printed(t, fake{}, "mnist", top.Output{Once: true}); err != nil || strings.Count(text, "goodput 87%") != 1 {
		t.Errorf("once: %v:\n%s", err, text)
	}
	if text, err := printed(t, fake{most: 3, last: finished().Ended}, "mnist", top.Output{JSON: true}); err != nil || strings.Count(text, "\n") != 3 || strings.Count(text, `{"seq":9000,`) != 3 {
		t.Errorf("JSON: %v: %d lines", err, strings.Count(text, "\n"))
	}
	if text, err := printed(t, fake{}, "mnist", top.Output{JSON: true, Once: true}); err != nil || strings.Count(text, "\n") != 1 {
		t.Errorf("JSON, once: %v: %d lines", err, strings.Count(text, "\n"))
	}
	if text, err := printed(t, fake{}, "", top.Output{}); err != nil || !strings.Contains(text, "mnist-boixb 2 running") {
		t.Errorf("list: %v:\n%s", err, text)
	}
	if text, err := printed(t, fake{most: 2}, "mnist", top.Output{}); !errors.Is(err, errGone) || strings.Count(text, "goodput") != 1 {
		t.Errorf("without a record: %v:\n%s", err, text)
	}
	if err := top.Print(t.Context(), full{}, fake{}, "mnist", top.New(time.UTC), top.Output{Width: 80}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a reader that is gone: %v", err)
	}
}

// The record of a job of before, which had the same name, is none of this job.
func TestPrintAfterEarlierJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{most: 1, last: finished().Ended}
		f.last.At = time.Now().Add(-time.Hour)
		if err := top.Print(t.Context(), &strings.Builder{}, f, "mnist", top.New(time.UTC), top.Output{Width: 80}); !errors.Is(err, errGone) {
			t.Errorf("got %v", err)
		}
	})
}

// full is a pipe that nobody reads.
type full struct{}

// Write implements io.Writer.
func (full) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// An end of the context ends the output with its cause.
func TestPrintCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("a signal")
	cancel(cause)
	if err := top.Print(ctx, &strings.Builder{}, fake{}, "mnist", top.New(time.UTC), top.Output{Width: 80}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
