package top

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// Source tells of jobs. Its methods may be called at the same time.
type Source interface {
	// Jobs returns the jobs of this user on this host.
	Jobs(ctx context.Context) ([]launch.Status, error)
	// Watch returns snapshots of a job by its full name, one a second, and an error at the end.
	Watch(ctx context.Context, job string) iter.Seq2[timeline.Snapshot, error]
	// Last returns how a job has ended.
	Last(ctx context.Context, job string) (launch.Status, error)
}

const (
	// rate bounds the frames a second. Snapshots come once a second; the others are answers to keys.
	rate = 10
	// beat is the time between two looks at the clock and at the list of jobs.
	beat = time.Second
	// grace is for how long the record of the end of a job may come after its last elrun is gone.
	grace = 2 * time.Second
)

// Run shows jobs at a terminal until its user ends it or ctx ends; then the terminal is as it was. job is the job to open, or ""
// for a list. It returns the cause of the end of ctx.
func Run(ctx context.Context, source Source, job string, m *Model) error {
	// Nothing that was started here outlives it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &shell{ctx: ctx, source: source, model: m, first: job}
	s.program = tea.NewProgram(s, tea.WithInput(os.Stdin), tea.WithOutput(os.Stdout), tea.WithFPS(rate), tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, s.program.Quit)
	defer stop()
	if _, err := s.program.Run(); err != nil {
		return fmt.Errorf("show jobs: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// shell drives a Model by package bubbletea. The loop of that package owns it, but for the streams, which only send messages.
type shell struct {
	ctx           context.Context
	source        Source
	model         *Model
	first         string // job to open at the start
	program       *tea.Program
	width, height int

	stream int    // number of the present stream; messages of others are late
	cancel func() // ends the present stream
}

// The messages of streams.
type (
	shown struct {
		stream   int
		snapshot timeline.Snapshot
		at       time.Time
	}
	ended struct {
		stream int
		end    End
	}
	jobList struct {
		stream int
		jobs   []launch.Status
		err    error
	}
	ticked time.Time
)

// Init implements tea.Model.
func (s *shell) Init() tea.Cmd {
	first := Action{Kind: List}
	if s.first != "" {
		first = Action{Open, s.first}
	}
	return tea.Batch(s.do(first), tick())
}

// tick sends the time.
func tick() tea.Cmd { return tea.Tick(beat, func(t time.Time) tea.Msg { return ticked(t) }) }

// Update implements tea.Model.
func (s *shell) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
		// While the terminal has a new size that is not known here yet, the renderer may scroll a part of the old one, and then
		// leave the margins of the terminal at the old height.
		return s, tea.Sequence(tea.Raw(ansi.SetTopBottomMargins(0, 0)), tea.ClearScreen)
	case tea.KeyPressMsg:
		return s, s.do(s.model.Press(msg.String()))
	case ticked:
		s.model.Tick(time.Time(msg))
		return s, tick()
	case shown:
		if msg.stream == s.stream {
			s.model.Show(msg.snapshot, msg.at)
		}
	case ended:
		if msg.stream == s.stream {
			s.model.End(msg.end)
		}
	case jobList:
		if msg.stream == s.stream {
			reason := ""
			if msg.err != nil {
				reason = msg.err.Error()
			}
			s.model.Jobs(msg.jobs, reason)
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s *shell) View() tea.View {
	v := tea.NewView(s.model.Frame(s.width, s.height).Styled())
	v.AltScreen = true
	return v
}

// do does what a key asks for.
func (s *shell) do(a Action) tea.Cmd {
	switch a.Kind {
	case Quit:
		return tea.Quit
	case Suspend:
		return tea.Suspend
	case Open:
		s.model.Open(a.Job)
		return s.begin(func(ctx context.Context, stream int) tea.Msg { return s.watch(ctx, stream, a.Job) })
	case List:
		return s.begin(s.lists)
	}
	return nil
}

// begin ends the present stream and begins another one. Package bubbletea runs it in a goroutine of its own, and restores the terminal
// if it panics.
func (s *shell) begin(stream func(ctx context.Context, stream int) tea.Msg) tea.Cmd {
	if s.cancel != nil {
		s.cancel()
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(s.ctx)
	s.stream++
	number := s.stream
	return func() tea.Msg { return stream(ctx, number) }
}

// watch sends the snapshots of a job, and returns its end.
func (s *shell) watch(ctx context.Context, stream int, job string) tea.Msg {
	end := follow(ctx, s.source, job, func(x timeline.Snapshot) error {
		s.program.Send(shown{stream, x, time.Now()})
		return nil
	})
	return ended{stream, endOf(end)}
}

// lists sends the list of jobs until ctx ends.
func (s *shell) lists(ctx context.Context, stream int) tea.Msg {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		jobs, err := s.source.Jobs(ctx)
		s.program.Send(jobList{stream, jobs, err})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// errEnded is the end of a job that has a record.
type errEnded struct{ launch.Ended }

// Error implements error.
func (e *errEnded) Error() string { return "the job has ended" }

// endOf returns what a Model shows for the error that follow has returned.
func endOf(err error) End {
	var e *errEnded
	if errors.As(err, &e) {
		return End{Ended: &e.Ended}
	}
	return End{Reason: err.Error()}
}

// follow calls show for each snapshot of a job until show returns an error, the job ends, or ctx ends. It returns the error: an
// *errEnded if the job has ended.
func follow(ctx context.Context, source Source, job string, show func(timeline.Snapshot) error) error {
	begun := time.Now()
	var end error
	for s, err := range source.Watch(ctx, job) {
		if err != nil {
			end = err
			break
		}
		if err := show(s); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tries := time.NewTicker(grace / 10)
	defer tries.Stop()
	for over := time.Now().Add(grace); time.Now().Before(over); {
		last, err := source.Last(ctx, job)
		// An earlier job of this name may have a record, too.
		if err == nil && last.Ended != nil && !last.Ended.At.Before(begun) {
			return &errEnded{*last.Ended}
		}
		select {
		case <-tries.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return end
}
