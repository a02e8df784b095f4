package run

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Run starts nothing if another launcher has the name, even if that one has no peers yet.
func TestRunOfATakenName(t *testing.T) {
	at := ctl.SocketName{Job: testJob(t), Index: ctl.LauncherIndex, PID: 0}
	l, err := ctl.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := spec.Options{Program: "false", Peers: 1, Job: at.Job}
	if _, err := Run(t.Context(), o); !errors.Is(err, spec.ErrOptions) || !strings.Contains(err.Error(), "is running already") {
		t.Errorf("got %v", err)
	}
	r := &runner{o: &o, calls: newCalls()} // both launchers have seen that the name is free
	if _, err := serveLauncher(r); !errors.Is(err, spec.ErrOptions) || !strings.Contains(err.Error(), "is running already") {
		t.Errorf("got %v", err)
	}
	// A launcher that joins a job has a socket of its own.
	r.o.Join = true
	end, err := serveLauncher(r)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ctl.ListSockets()
	if want := (ctl.SocketName{Job: at.Job, Index: ctl.LauncherIndex, PID: os.Getpid()}); err != nil || !slices.Contains(all, want) || !slices.Contains(all, at) {
		t.Errorf("got %v, %v", all, err)
	}
	end()
}

// A launcher answers only elrun stop. After the end of its loop, and before, requests do not hang.
func TestLauncherServices(t *testing.T) {
	r := &runner{o: &spec.Options{Job: testJob(t)}, calls: newCalls()}
	s := launcherServices{r}
	if got, err := s.Answer(t.Context(), wire.Request{Request: "status"}); err == nil {
		t.Errorf("status: %+v", got)
	}
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := s.Answer(hasty, wire.Request{Request: "stop"}); err == nil || got.Stopping {
		t.Errorf("before the loop: %+v", got)
	}
	close(r.calls.over)
	if got, err := s.Answer(t.Context(), wire.Request{Request: "stop"}); err == nil || got.Stopping {
		t.Errorf("after the loop: %+v", got)
	}
	s.End()
}

// A peer that elrun stop asks after it has reported the result has finished: it is to blame if it
// cannot keep the result.
func TestStopAfterTheResult(t *testing.T) {
	ready := sink.Expect("ready")
	job := testJob(t)
	var work sync.WaitGroup
	work.Go(func() {
		<-ready.Seen
		if s, err := ctl.Of(job).Stop(t.Context()); err != nil || s.Peers != 1 {
			t.Errorf("got %+v, %v", s, err)
		}
	})
	res, _, err := runShell(t, sayHello+`trap 'exit 1' TERM; `+sayDone+`abcd >&3; echo ready; while :; do sleep 0.01; done`,
		spec.Options{Peers: 1, Job: job, Output: spec.Output{Stdout: ready}})
	work.Wait()
	if res.Status != 1 || !strings.Contains(err, "it had a result, but then peer 0") {
		t.Errorf("status %d, %s", res.Status, err)
	}
}
