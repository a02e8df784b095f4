package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event/timeline"
)

// fakeTrainJob is a job in a pod, and the server of its TrainJob.
type fakeTrainJob struct {
	mu      sync.Mutex
	now     timeline.Progress
	leads   bool
	refused error
	steps   []int64 // of the reports
	at      []time.Time
	lines   []string
}

func (f *fakeTrainJob) post(_ context.Context, p timeline.Progress, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.steps, f.at = append(f.steps, p.Step), append(f.at, now)
	}
	return f.refused
}

func (f *fakeTrainJob) progress(context.Context) (timeline.Progress, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.leads
}

func (f *fakeTrainJob) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

// pass changes the job, lets time pass, and checks the number of reports.
func (f *fakeTrainJob) pass(t *testing.T, change func(), d time.Duration, want int) {
	t.Helper()
	f.mu.Lock()
	change()
	f.mu.Unlock()
	<-time.After(d)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.steps) != want || len(f.lines) > 1 {
		t.Errorf("%d reports, want %d; lines %q", len(f.steps), want, f.lines)
	}
}

// The status of a TrainJob gets the progress at most every five seconds, and at the end. While the server fails, a line
// says so once.
func TestTrainJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTrainJob{leads: true}
		j := (&trainJob{post: f.post, progress: f.progress, say: f.say}).start()
		f.pass(t, func() {}, time.Minute, 0) // no step
		f.pass(t, func() { f.now.Step = 1 }, time.Second, 1)
		f.pass(t, func() { f.now.Step = 2 }, 3*time.Second, 1)
		f.pass(t, func() {}, 2*time.Second, 2)
		f.pass(t, func() {}, time.Minute, 2) // no further step
		f.pass(t, func() { f.refused, f.now.Step = errors.New("too many requests"), 3 }, time.Minute, 2)
		f.pass(t, func() { f.refused, f.leads = nil, false }, time.Minute, 2) // another elrun reports
		f.pass(t, func() { f.leads = true }, 5*time.Second, 3)
		j.finish(timeline.Progress{Step: 4}, true)
		if last := f.steps[len(f.steps)-1]; last != 4 || len(f.lines) != 1 {
			t.Errorf("reports of %v, lines %q", f.steps, f.lines)
		}
		for i := 1; i < len(f.at)-1; i++ {
			if f.at[i].Sub(f.at[i-1]) < reportPeriod {
				t.Errorf("reports at %v", f.at)
			}
		}
	})
	var none *trainJob
	none.finish(timeline.Progress{Step: 1}, true)
}

// A server that does not answer does not hold up the end of a job.
func TestTrainJobEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := (&trainJob{
			post: func(ctx context.Context, _ timeline.Progress, _ time.Time) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			progress: func(context.Context) (timeline.Progress, bool) { return timeline.Progress{Step: 1}, true },
			say:      t.Errorf,
		}).start()
		<-time.After(10 * time.Second)
		begun := time.Now()
		j.finish(timeline.Progress{Step: 1}, true)
		if took := time.Since(begun); took > lastReportPatience {
			t.Errorf("the end takes %v", took)
		}
	})
}
