package p2p

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// wait returns only after the tasks that have begun, and no task begins after stop.
func TestTasksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, ended := newTasks(), false
		if !all.run(func() {
			<-all.closed()
			<-time.After(time.Second)
			ended = true
		}) {
			t.Fatal("no task begins")
		}
		all.stop()
		if all.run(func() { t.Error("a task runs after stop") }) || all.begin() {
			t.Error("a task begins after stop")
		}
		if all.wait(); !ended {
			t.Error("wait does not wait for the task")
		}
	})
}

// A pause ends early with the context or the host, and says which.
func TestTasksPause(t *testing.T) {
	last := errors.New("refused")
	for name, test := range map[string]struct {
		end  func(all *tasks, cancel context.CancelFunc)
		want error
	}{
		"whole":   {func(*tasks, context.CancelFunc) {}, nil},
		"context": {func(_ *tasks, cancel context.CancelFunc) { cancel() }, last},
		"host":    {func(all *tasks, _ context.CancelFunc) { all.stop() }, transport.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newTasks()
				defer all.stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				go test.end(all, cancel)
				err := all.pause(ctx, time.Minute, last)
				if !errors.Is(err, test.want) || (time.Since(began) == time.Minute) != (test.want == nil) {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
			})
		})
	}
}
