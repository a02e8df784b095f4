package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNeverLevel means that a newcomer cannot catch up while the job trains; the error is a
// *NeverLevelError. The remedy is a snapshot of a pause in which the state does not change.
var ErrNeverLevel = errors.New("cannot catch up while training goes on")

// NeverLevelError contains the rates of a newcomer that cannot catch up. They are 0 if the updates
// were gone before any was received.
type NeverLevelError struct {
	Needed   float64 // rate at which the job makes updates, in bytes a second
	Measured float64 // rate at which this newcomer received and applied updates, in bytes a second
	// Behind is the number of steps that the newcomer lacks.
	Behind int64
	// Gone is set if no donor has the updates that the newcomer needs next.
	Gone bool
}

// Error returns the rates and the distance.
func (n *NeverLevelError) Error() string {
	why := "updates come faster than this peer applies them"
	if n.Gone {
		why = "no donor has the updates that are needed"
	}
	return fmt.Sprintf("transfer: %v: %d steps behind, %s; updates: %.3g bytes/s made, %.3g received",
		ErrNeverLevel, n.Behind, why, n.Needed, n.Measured)
}

// Unwrap returns ErrNeverLevel.
func (n *NeverLevelError) Unwrap() error { return ErrNeverLevel }

// Following is the state and the callbacks of Follow. All callbacks run in the goroutine of Follow.
type Following struct {
	// After is the step of the newcomer's state.
	After int64
	// Apply brings the state from step-1 to step. update is valid only during the call. An error
	// ends Follow.
	Apply func(step int64, update []byte) error
	// Level, if set, is called when the newcomer becomes level, and when it is no longer level; at
	// is the step of its state. A newcomer is level if it is at most one step behind, or so few
	// steps behind that receiving and applying them takes at most Options.Slack.
	Level func(at int64, level bool)
}

// Follow applies the updates after a snapshot in order, and then each new update, so that the
// newcomer stays level until it is admitted. If a donor dies Follow uses another donor. Follow
// returns only with an error: an error that wraps the cause of ctx (Follow waits for an Apply in
// progress), an error of Apply, or a *NeverLevelError. The state is then the state after the last
// applied step.
func Follow(ctx context.Context, src Source, o Options, f Following) error {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	fd := newFeed(client{src, o}, f.After)
	fd.start(ctx)
	// Deferred calls run in reverse order: cancel ends the feed before Wait waits for it.
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

// follower is the state of Follow.
type follower struct {
	Following
	fd      *feed
	slack   time.Duration
	applied int64 // last step of the newcomer's state
	level   bool  // the last argument of a call of Level
	gauge   gauge

	// The fields below describe the present batch of updates. The donor's committed step in the
	// header of the batch is at.
	at int64
	// behind is the number of steps that the newcomer lacked when it received the header.
	behind int64
	// begun is the time at which the header of the batch was handled.
	begun time.Time
}

// take handles an item of the feed.
func (f *follower) take(it item) error {
	switch {
	case it.gone:
		f.behind = max(f.behind, it.at-f.applied)
		return f.gauge.neverLevel(f.behind, true)
	case it.data != nil:
		if err := f.Apply(it.step, *it.data); err != nil {
			return fmt.Errorf("transfer: apply the update of step %d: %w", it.step, err)
		}
		f.applied = it.step
		f.gauge.add(int64(len(*it.data)))
		f.fd.recycle(*it.data)
	default:
		f.at, f.behind, f.begun = it.at, it.at-f.applied, time.Now()
		// The distance is the number of missing steps. After one window in which it did not shrink
		// another donor is tried; after two such windows in a row the newcomer gives up.
		switch f.gauge.record(it.at, f.applied, f.level) {
		case 1:
			f.fd.tired.Store(true)
		case 2:
			return f.gauge.neverLevel(f.behind, false)
		}
	}
	if it.last {
		f.judge()
	}
	return nil
}

// judge decides at the end of a batch whether the newcomer is level. If steps are short a newcomer
// is always some steps behind, so a newcomer that applies a batch within Slack counts as level,
// too.
func (f *follower) judge() {
	level := f.at-f.applied <= 1 && (f.behind <= 1 || time.Since(f.begun) <= f.slack)
	if level != f.level && f.Level != nil {
		f.Level(f.applied, level)
	}
	f.level = level
}

// gauge detects that the distance (the number of missing steps) does not shrink. It compares the
// distance at the beginning and the end of windows of time.
type gauge struct {
	window time.Duration

	// The following fields are set at the beginning of the window, or counted since then.
	begun       time.Time
	at, applied int64 // committed step of the donor, and step of the newcomer, at the beginning
	updates     int64 // number of updates applied
	// bytes is the number of bytes of these updates.
	bytes   int64
	stalled int // number of windows in a row in which the distance did not shrink

	needed, measured float64 // rates in bytes a second, see NeverLevelError
}

// add counts an applied update.
func (g *gauge) add(bytes int64) {
	g.updates++
	g.bytes += bytes
}

// record takes a new distance. If it ends a window in which the distance did not shrink it
// returns the number of such windows in a row, and otherwise 0.
func (g *gauge) record(at, applied int64, level bool) int {
	now := time.Now()
	elapsed := now.Sub(g.begun)
	if g.begun.IsZero() || level {
		g.restart(now, at, applied)
		g.stalled = 0
		return 0
	}
	// The rates are computed even if the window is not complete yet.
	g.rates(at, elapsed)
	if elapsed < g.window || g.updates < 2 {
		return 0
	}
	behind := at - applied
	if behind > 1 && behind >= g.at-g.applied {
		g.stalled++
	} else {
		g.stalled = 0
	}
	g.restart(now, at, applied)
	return g.stalled
}

// rates computes the rates of the present window so far.
func (g *gauge) rates(at int64, elapsed time.Duration) {
	if elapsed <= 0 || g.updates == 0 {
		return
	}
	seconds := elapsed.Seconds()
	g.measured = float64(g.bytes) / seconds
	g.needed = float64(g.bytes) / float64(g.updates) * float64(at-g.at) / seconds
}

// restart begins a new window.
func (g *gauge) restart(now time.Time, at, applied int64) {
	g.begun, g.at, g.applied, g.updates, g.bytes = now, at, applied, 0, 0
}

// neverLevel returns the error with the rates.
func (g *gauge) neverLevel(behind int64, gone bool) error {
	return &NeverLevelError{Needed: g.needed, Measured: g.measured, Behind: behind, Gone: gone}
}
