package run

import (
	"context"
	"os"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/kubeflow"
	"github.com/elrun/elrun/launch/internal/wire"
)

// trainJob reports the progress of a job to the status of the TrainJob to which this pod belongs, in a goroutine of its
// own. A nil trainJob does nothing.
type trainJob struct {
	post func(ctx context.Context, p timeline.Progress, now time.Time) error
	// progress returns the progress of the job, and false if another elrun reports it.
	progress func(context.Context) (timeline.Progress, bool)
	say      func(format string, args ...any)
	cancel   context.CancelFunc
	ended    chan struct{}
	reported int64 // the step of the last report
	failing  bool  // a line has said so
}

const (
	// reportPeriod is the least time between two reports, as the server wants it.
	reportPeriod = 5 * time.Second
	// reportLook is the time between two looks at the progress.
	reportLook = time.Second
	// lastReportPatience bounds the report at the end of a job.
	lastReportPatience = 2 * time.Second
)

// joinTrainJob starts the reports of a job in a pod of a TrainJob, and returns nil elsewhere. The elrun whose peer
// has rank 0 reports.
func (r *runner) joinTrainJob() *trainJob {
	to := kubeflow.FromEnv(os.Getenv)
	if to == nil {
		return nil
	}
	return (&trainJob{post: to.Post, say: r.report.Printf, progress: func(ctx context.Context) (p timeline.Progress, ok bool) {
		r.calls.do(ctx, func() { p, ok = r.peers.journal.model.Progress(), r.report.IsLeading() })
		return p, ok
	}}).start()
}

// start starts the goroutine.
func (t *trainJob) start() *trainJob {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.ended = cancel, make(chan struct{})
	go t.run(ctx)
	return t
}

// run reports until ctx ends.
func (t *trainJob) run(ctx context.Context) {
	defer close(t.ended)
	look := time.NewTicker(reportLook)
	defer look.Stop()
	var last time.Time
	for {
		select {
		case now := <-look.C:
			if now.Sub(last) < reportPeriod {
				continue
			}
			if p, ok := t.progress(ctx); ok && p.Step > t.reported {
				last = now
				t.report(ctx, p, now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// report makes a report. The first of several failures in a row is a line for people.
func (t *trainJob) report(ctx context.Context, p timeline.Progress, now time.Time) {
	err := t.post(ctx, p, now)
	switch {
	case err == nil:
		t.reported, t.failing = p.Step, false
	case ctx.Err() == nil && !t.failing:
		t.failing = true
		t.say("%s; the job goes on, and the status of the TrainJob stays as it is", wire.ClipNote(err.Error()))
	}
}

// finish ends the reports with the progress at the end of the job, if this elrun leads.
func (t *trainJob) finish(p timeline.Progress, leads bool) {
	if t == nil {
		return
	}
	t.cancel()
	<-t.ended
	if leads && p.Step > t.reported {
		ctx, cancel := context.WithTimeout(context.Background(), lastReportPatience)
		defer cancel()
		t.report(ctx, p, time.Now())
	}
}
