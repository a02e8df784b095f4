package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNeverLevel says that a joiner cannot be brought up to date while steps go on; the
// error is a *NeverLevelError. The remedy is a pause: a snapshot while the state rests.
var ErrNeverLevel = errors.New("cannot catch up while training goes on")

// NeverLevelError says how far a joiner is from catching up. The rates are 0 where the
// updates were gone before any was received.
type NeverLevelError struct {
	Needed   float64 // bytes of updates a second that the job makes
	Measured float64 // bytes of updates a second that this joiner received and applied
	Behind   int64   // steps that it lacks
	Gone     bool    // no donor has the updates that it needs next
}

// Error names the figures.
func (e *NeverLevelError) Error() string {
	why := "the distance grows"
	if e.Gone {
		why = "no donor has the updates that are needed"
	}
	return fmt.Sprintf("transfer: %v: %d steps behind, %s; the job makes %.3g bytes of updates a second, this peer takes in %.3g",
		ErrNeverLevel, e.Behind, why, e.Needed, e.Measured)
}

// Unwrap returns ErrNeverLevel.
func (e *NeverLevelError) Unwrap() error { return ErrNeverLevel }

// Following says what Follow is to do with the updates. All is called in the goroutine
// of Follow.
type Following struct {
	// After is the step of the joiner's state.
	After int64
	// Apply brings the state from step-1 to step. update is valid during the call only.
	// An error ends Follow.
	Apply func(step int64, update []byte) error
	// Level, if set, is called when the joiner becomes level, and when it is not any more;
	// at is the step of its state. Level means: at most one step behind, or so few that
	// they take no longer than Options.Slack.
	Level func(at int64, level bool)
}

// Follow applies the updates after a snapshot in order, and goes on with those that are
// committed meanwhile, so that the joiner stays level until it is let in. It changes the
// donor when one dies. It returns only with an error: when ctx ends one that wraps its
// cause, after Apply of a started update has returned; an error of Apply; or a
// *NeverLevelError. The state is then that after the last step that was applied.
func Follow(ctx context.Context, src Source, o Options, f Following) error {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	fd := newFeed(client{src, o}, f.After)
	fd.start(ctx)
	defer fd.running.Wait()
	defer cancel()
	fo := &follower{Following: f, fd: fd, applied: f.After, gauge: gauge{window: o.Window}, slack: o.Slack}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("transfer: follow: %w", context.Cause(ctx))
		case it := <-fd.items:
			if err := fo.take(it); err != nil {
				return err
			}
		}
	}
}

// follower is what Follow knows of the joiner's state.
type follower struct {
	Following
	fd      *feed
	slack   time.Duration
	applied int64 // step of the state
	level   bool
	gauge   gauge

	// The batch of updates that is under way.
	at     int64     // step at which the donor was when it put it together
	behind int64     // steps that the joiner lacked then
	begun  time.Time // when its header was taken
}

// take does what an item of the feed asks for.
func (f *follower) take(it item) error {
	switch {
	case it.gone:
		f.behind = max(f.behind, it.at-f.applied)
		return f.gauge.verdict(f.behind, true)
	case it.data != nil:
		if err := f.Apply(it.step, *it.data); err != nil {
			return fmt.Errorf("transfer: apply the update of step %d: %w", it.step, err)
		}
		f.applied = it.step
		f.gauge.add(int64(len(*it.data)))
		f.fd.recycle(*it.data)
	default:
		f.at, f.behind, f.begun = it.at, it.at-f.applied, time.Now()
		switch f.gauge.strike(it.at, f.applied, f.level) {
		case 1:
			f.fd.tired.Store(true)
		case 2:
			return f.gauge.verdict(f.behind, false)
		}
	}
	if it.last {
		f.judge()
	}
	return nil
}

// judge decides at the end of a batch whether the joiner is level. Where steps are short
// it is always some behind; what counts then is that the next batch is short, too.
func (f *follower) judge() {
	level := f.at-f.applied <= 1 && (f.behind <= 1 || time.Since(f.begun) <= f.slack)
	if level != f.level && f.Level != nil {
		f.Level(f.applied, level)
	}
	f.level = level
}

// gauge watches whether the distance to the donors grows.
type gauge struct {
	window time.Duration

	// Since the beginning of the window.
	begun       time.Time
	at, applied int64 // steps then
	updates     int64 // applied since
	bytes       int64
	strikes     int // windows in a row in which the distance did not shrink

	needed, measured float64 // of the last full window
}

// add counts an update that was applied.
func (g *gauge) add(bytes int64) {
	g.updates++
	g.bytes += bytes
}

// strike takes a new distance. If it ends a window in which the distance did not shrink
// it returns how many of these there were in a row, and otherwise 0.
func (g *gauge) strike(at, applied int64, level bool) int {
	now := time.Now()
	elapsed := now.Sub(g.begun)
	if g.begun.IsZero() || level {
		g.restart(now, at, applied)
		g.strikes = 0
		return 0
	}
	g.rates(at, elapsed)
	if elapsed < g.window || g.updates < 2 {
		return 0
	}
	behind := at - applied
	if behind > 1 && behind >= g.at-g.applied {
		g.strikes++
	} else {
		g.strikes = 0
	}
	g.restart(now, at, applied)
	return g.strikes
}

// rates measures what the window has seen so far.
func (g *gauge) rates(at int64, elapsed time.Duration) {
	if elapsed <= 0 || g.updates == 0 {
		return
	}
	seconds := elapsed.Seconds()
	g.measured = float64(g.bytes) / seconds
	g.needed = float64(g.bytes) / float64(g.updates) * float64(at-g.at) / seconds
}

// restart begins a window.
func (g *gauge) restart(now time.Time, at, applied int64) {
	g.begun, g.at, g.applied, g.updates, g.bytes = now, at, applied, 0, 0
}

// verdict makes the error.
func (g *gauge) verdict(behind int64, gone bool) error {
	return &NeverLevelError{Needed: g.needed, Measured: g.measured, Behind: behind, Gone: gone}
}
