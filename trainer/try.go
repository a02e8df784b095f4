package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
)

// try is a try at a step within one session.
type try struct {
	// plan has the samples and microbatches of the step.
	plan  stepPlan
	begun time.Time  // start of the try
	sums  *reduction // reduction of the buckets
	// whole is set if nothing of this peer's share was computed when the try began.
	whole bool
	// before is the time that this peer has spent computing the same step before this try.
	before time.Duration
	// claimed is the part of the computing time of the first call that fell within the previous
	// step.
	claimed time.Duration
	// following is the computing time of the next step's first call within this step. It is
	// subtracted from the times of this step.
	following time.Duration
	// failed is the error of the call that began within the previous step.
	failed error

	// computed is the time at which this peer's share was complete.
	computed time.Time
}

// readyAt returns the callback for complete gradients. All calls of a share add to
// the same sums. So only the last call reports parts of the sums as ready to be reduced.
func (t *try) readyAt(last bool) func(i, from int) {
	if last {
		return t.sums.ready
	}
	return ignore
}

// exchanged is the result of waiting for all buckets and the commit record.
type exchanged struct {
	// reports has the report of each rank, from the commit record.
	reports  []rankReport
	exchange time.Duration // time of the exchange of reports
	err      error
}

// exchange waits for the sums of all buckets, and then exchanges reports. Success proves that the
// contribution of every rank is in the sums at every rank.
func (t *try) exchange(ctx context.Context, s *elastic.Session, mine rankReport, r *reducer) exchanged {
	if err := t.sums.wait(ctx); err != nil {
		return exchanged{err: fmt.Errorf("step %d: %w", t.plan.step, err)}
	}
	begun := time.Now()
	reports, err := r.exchange(ctx, s, mine)
	return exchanged{reports, time.Since(begun), err}
}
