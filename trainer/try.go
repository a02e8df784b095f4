package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
)

// try is a try at a step in a session.
type try struct {
	plan    stepPlan
	begun   time.Time
	sums    *reduction    // of the buckets
	whole   bool          // nothing of this peer's share was there when it began
	before  time.Duration // computing, for the same step, before it began
	claimed time.Duration // computing its first call in the step before
	// following is the computing of the first call of the step after it, while it was open.
	following time.Duration
	failed    error // of that call

	computed time.Time // when this peer's share was complete
}

// readyAt returns what is told of gradients that are complete: the reduction, if they are those
// of the last call.
func (t *try) readyAt(last bool) func(i, from int) {
	if last {
		return t.sums.ready
	}
	return ignore
}

// exchanged is what this peer has of a step when all buckets and the commit record are there.
type exchanged struct {
	reports  []rankReport
	exchange time.Duration // that the exchange of the reports took
	err      error
}

// exchange waits until the sums of all buckets are there, and exchanges reports: when that has
// succeeded every rank's contribution is in every rank's sums.
func (t *try) exchange(ctx context.Context, s *elastic.Session, mine rankReport, r *reducer) exchanged {
	if err := t.sums.wait(ctx); err != nil {
		return exchanged{err: fmt.Errorf("step %d: %w", t.plan.step, err)}
	}
	begun := time.Now()
	reports, err := r.exchange(ctx, s, mine)
	return exchanged{reports, time.Since(begun), err}
}
