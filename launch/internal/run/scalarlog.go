package run

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/scalars"
	"github.com/elrun/elrun/launch/spec"
)

// scalarLog writes the figures of steps and evaluations to the folder of Output.Scalars, in a goroutine of its own,
// since a disk may be slow. The launcher's loop calls offer. A nil scalarLog does nothing.
type scalarLog struct {
	say     func(format string, args ...any)
	rows    chan scalars.Row
	ended   chan struct{}
	failed  bool  // a write has failed; of the goroutine
	step    int64 // the latest step that was offered
	members int   // of the latest view
	late    bool  // rows are left out
}

const (
	// maxRows bounds the rows that wait for the disk.
	maxRows = 4096
	// flushPeriod is the time after which a row is in the files.
	flushPeriod = time.Second
)

// start opens the files and starts the goroutine, which finish ends; say is set. It returns nil if the options ask
// for no files.
func (s *scalarLog) start(o *spec.Options) (*scalarLog, error) {
	if o.Output.Scalars == "" {
		return nil, nil
	}
	w, err := scalars.Open(o.Output.Scalars, time.Now())
	if err != nil {
		return nil, fmt.Errorf("launch: folder for the figures of steps: %w", err)
	}
	s.rows, s.ended = make(chan scalars.Row, maxRows), make(chan struct{})
	go s.run(w)
	return s, nil
}

// offer writes the figures of a step at its first report, and those of an evaluation; model has the event already.
// It does not block: while maxRows wait, further ones are left out.
func (s *scalarLog) offer(e event.Event, model *timeline.Job) {
	if s == nil {
		return
	}
	var values map[string]float64
	switch b := e.Body.(type) {
	case event.View:
		s.members = len(b.Members)
	case event.Eval:
		values = evalFigures(b)
	case event.Step:
		if e.Step > s.step {
			s.step = e.Step
			values = s.stepFigures(b, model.Progress())
		}
	}
	if len(values) == 0 || s.late {
		return
	}
	select {
	case s.rows <- scalars.Row{Time: e.Time, Step: e.Step, Values: values}:
	default:
		s.late = true
		s.say("--log: the disk is too slow, so the figures from step %d on are not written", e.Step)
	}
}

// evalFigures returns the figures of an evaluation by name.
func evalFigures(b event.Eval) map[string]float64 {
	values := make(map[string]float64)
	set := ""
	if b.Set != "" {
		set = b.Set + "/"
	}
	for name, x := range map[string]*float64{"loss": b.Loss, "accuracy": b.Accuracy} {
		if x != nil {
			values["evaluation/"+set+name] = *x
		}
	}
	return values
}

// stepFigures returns the figures of a step by name. What is 0 is unknown.
func (s *scalarLog) stepFigures(b event.Step, p timeline.Progress) map[string]float64 {
	values := make(map[string]float64)
	for name, x := range map[string]float64{"loss": b.Loss, "learning_rate": b.LR, "gradient_norm": b.GradNorm, "noise_scale_samples": b.NoiseScale,
		"samples": float64(b.Samples), "samples_per_s": p.SamplesPerS, "step_ms": b.StepMS, "members": float64(s.members)} {
		if x != 0 {
			values[name] = x
		}
	}
	for name, x := range b.Metrics {
		values["reported/"+name] = x
	}
	return values
}

// run writes rows until rows is closed. After an error it writes none.
func (s *scalarLog) run(w *scalars.Writer) {
	defer close(s.ended)
	tick := time.NewTicker(flushPeriod)
	defer tick.Stop()
	dirty := false
	for more := true; more; {
		var err error
		var r scalars.Row
		select {
		case r, more = <-s.rows:
			err, dirty = s.write(w, r, more), true
		case <-tick.C:
			if dirty && !s.failed {
				err, dirty = w.Flush(), false
			}
		}
		if err != nil && !s.failed {
			s.failed = true
			s.say("--log: %v; no further figures are written", err)
		}
	}
}

// write writes a row, and closes the files if there are no more.
func (s *scalarLog) write(w *scalars.Writer, r scalars.Row, more bool) error {
	switch {
	case !more:
		return w.Close()
	case s.failed:
		return nil
	}
	return w.Add(r)
}

// finish waits until all rows are written, but no longer than the patience.
func (s *scalarLog) finish(patience time.Duration) {
	if s == nil {
		return
	}
	close(s.rows)
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.say("--log: the disk is too slow, so the last figures may be missing")
	}
}
