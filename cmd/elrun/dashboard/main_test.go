package dashboard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeJob is a job whose snapshots a test sends. It records the actions.
type fakeJob struct {
	seen chan result // what Watch yields next

	mu   sync.Mutex
	acts []string
	slow bool // a checkpoint takes long
}

// result is what Watch yields.
type result struct {
	s   timeline.Snapshot
	err error
}

func newFakeJob() *fakeJob { return &fakeJob{seen: make(chan result)} }

func (*fakeJob) Outcome(context.Context) string { return "finished with status 0" }

func (f *fakeJob) Find(context.Context) (Actor, error) { return f, nil }

func (f *fakeJob) Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		for {
			select {
			case r := <-f.seen:
				if !yield(r.s, r.err) || r.err != nil {
					return
				}
			case <-ctx.Done():
				yield(timeline.Snapshot{}, ctx.Err())
				return
			}
		}
	}
}

// acted records an action.
func (f *fakeJob) acted(format string, args ...any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, fmt.Sprintf(format, args...))
	return "done", nil
}

func (f *fakeJob) Scale(_ context.Context, n, launcher int) (string, error) {
	if n > 9 {
		return "", errors.New("too many peers")
	}
	return f.acted("scale %d %d", n, launcher)
}

func (f *fakeJob) Kick(_ context.Context, peer string) (string, error) {
	return f.acted("kick %s", peer)
}

func (f *fakeJob) Ticket(_ context.Context, valid time.Duration) (launch.Ticket, error) {
	_, err := f.acted("ticket %v", valid)
	return launch.Ticket{Text: "a-ticket"}, err
}

func (f *fakeJob) Checkpoint(_ context.Context, wait bool) (wish.Saved, error) {
	_, err := f.acted("checkpoint %v", wait)
	if f.slow {
		return wish.Saved{Since: 3, By: "peer0000", Host: "lab1"}, fmt.Errorf("not yet: %w", context.DeadlineExceeded)
	}
	return wish.Saved{Since: 3, Step: 4, Path: "/ck/step-4", Host: "lab1"}, err
}

func (f *fakeJob) Stop(context.Context) (launch.Stopped, error) {
	_, err := f.acted("stop")
	return launch.Stopped{}, err
}

// training returns the model of a job of some peers, to which add adds steps.
type training struct {
	job   *timeline.Job
	ids   []string
	at    time.Time
	steps int64
}

// newTraining returns a job of n peers on the hosts.
func newTraining(n int, hosts ...string) *training {
	t := &training{job: timeline.New(), at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	t.job.Add(event.Event{Time: t.at, Index: event.NoPeer, Body: event.Job{Job: "mnist", Program: "./mnist"}})
	for i := range n {
		id := fmt.Sprintf("peer%04d", i)
		t.ids = append(t.ids, id)
		t.job.Add(event.Event{Time: t.at, Peer: id, Index: i, Body: event.Member{Who: id, WhoIndex: i, Host: hosts[i%len(hosts)], Launcher: "L", PID: 10 + i, Began: t.at}})
	}
	for i, id := range t.ids {
		t.job.Add(event.Event{Time: t.at, Peer: id, Index: i, Epoch: 1, Body: event.View{Members: t.ids, Reason: "start"}})
	}
	return t
}

// add adds n steps of 100 ms, in which the first peer waits for the second, and returns the state after them.
func (t *training) add(n int) timeline.Snapshot {
	for range n {
		t.steps++
		begun := t.at
		t.at = t.at.Add(100 * time.Millisecond)
		for i, id := range t.ids {
			s := event.Step{Microbatches: [][2]int{{i, i + 1}}, ShareSamples: 8, Samples: 8 * len(t.ids), Of: 1000, Loss: 2 / float64(t.steps+1), StepMS: 100, ComputeMS: 90}
			s.Began, s.ReduceMS = begun, 10
			if i == 0 && len(t.ids) > 1 {
				s.ComputeMS, s.WaitMS, s.WaitFor = 60, 30, t.ids[1]
			}
			t.job.Add(event.Event{Time: t.at, Peer: id, Index: i, Epoch: 1, Step: t.steps, Body: s})
		}
	}
	return t.job.Snapshot()
}
