package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// mortal serves the control socket of a peer. When the peer is asked to stop, it calls dying, and
// then the socket is gone.
func mortal(t *testing.T, job string, index int, dying func()) {
	t.Helper()
	asked := make(chan struct{}, 1)
	c, err := Serve(SocketName{job, index, os.Getpid()},
		Services{Status: func() spec.Status { return spec.Status{Job: job} }, Stop: func() { asked <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	var life sync.WaitGroup
	life.Go(func() {
		select {
		case <-asked:
			dying()
		case <-t.Context().Done(): // the test failed
		}
		_ = c.Close()
	})
	t.Cleanup(life.Wait)
}

func TestStop(t *testing.T) {
	job := testJob(t)
	for i := range 3 {
		mortal(t, job, i, func() {})
	}
	other := "other-" + testJob(t)
	serveStatus(t, other, 0, func() spec.Status { return spec.Status{Job: other} }) // is not stopped: another job
	found := findJob(t, job)
	s, err := found.Stop(t.Context())
	if err != nil || s.Job != job || s.Peers != 3 || s.Took <= 0 {
		t.Errorf("got %+v, %v, want job %s and 3 peers", s, err, job)
	}
	if _, err := found.Stop(t.Context()); !errors.Is(err, ErrNoJob) {
		t.Errorf("once more: %v, want ErrNoJob", err)
	}
	if _, err := Find(t.Context(), job); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), other) {
		t.Errorf("find it then: %v, want ErrNoJob that lists %s", err, other)
	}
}

// A peer that has agreed to end waits until the client closes the connection, or until its own time
// limit has passed.
func TestStopWaits(t *testing.T) {
	for name, end := range map[string]func(net.Conn, *Control) error{
		"hung up": func(conn net.Conn, _ *Control) error { return conn.Close() },
		"closed":  func(_ net.Conn, c *Control) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			at := SocketName{testJob(t), 0, os.Getpid()}
			stopped := make(chan struct{}, 1)
			c, err := Serve(at, Services{Stop: func() { stopped <- struct{}{} }})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conn, r, err := open(t.Context(), at, wire.Request{Request: "stop"})
			if err != nil || !r.Stopping {
				t.Fatalf("got %+v, %v", r, err)
			}
			defer conn.Close()
			if len(stopped) > 0 {
				t.Error("the peer did not wait")
			}
			if err := end(conn, c); err != nil {
				t.Error(err)
			}
			<-stopped
		})
	}
}

// Peers are asked again when the grace period of the job is over, once, and given up later. The longest period that a peer names
// counts.
func TestStopFollowsTheGrace(t *testing.T) {
	job := testJob(t)
	for i, grace := range []time.Duration{time.Minute, time.Hour, 0} {
		c, err := Serve(SocketName{job, i, os.Getpid()}, Services{Stop: func() {}, Grace: grace})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	s := stopping{job: findJob(t, job), asked: map[SocketName]error{}}
	if again, giveUp := s.overdue(spec.DefaultGrace + 1); !again || giveUp {
		t.Errorf("without an answer: again %v, give up %v", again, giveUp)
	}
	names, err := s.left()
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	s.ask(t.Context(), names)
	for _, c := range []struct {
		since         time.Duration
		asked         bool
		again, giveUp bool
	}{{time.Hour, false, false, false}, {time.Hour + 1, false, true, false}, {time.Hour + 1, true, false, false}, {time.Hour + endPeriod + 1, true, false, true}} {
		s.again = c.asked
		if again, giveUp := s.overdue(c.since); again != c.again || giveUp != c.giveUp {
			t.Errorf("%+v: got %v, %v", c, again, giveUp)
		}
	}
}

// A peer that starts while other peers end is asked to stop as well.
func TestStopDuringStart(t *testing.T) {
	job := testJob(t)
	mortal(t, job, 0, func() { mortal(t, job, 1, func() {}) })
	s, err := findJob(t, job).Stop(t.Context())
	if want := (spec.Stopped{Job: job, Peers: 2, Took: s.Took}); err != nil || s != want {
		t.Errorf("got %+v, %v, want %+v", s, err, want)
	}
}

// The error names exactly the peers that still run.
func TestStopStubborn(t *testing.T) {
	job := testJob(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	impatient := errors.New("impatient")
	gone := make(chan struct{})
	mortal(t, job, 0, func() { close(gone) })
	c, err := Serve(SocketName{job, 1, os.Getpid()}, Services{Stop: func() {
		<-gone
		cancel(impatient)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = findJob(t, job).Stop(ctx)
	if want := fmt.Sprintf("peer 1 (pid %d)", os.Getpid()); !errors.Is(err, impatient) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it, and the cause", err, want)
	}
}

// A peer that closes the connection is asked repeatedly, and the error has the cause.
func TestStopNotTaken(t *testing.T) {
	job := testJob(t)
	l, err := Listen(SocketName{job, 0, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var peer sync.WaitGroup
	peer.Go(func() { hangUp(l, 3, cancel) })
	_, err = findJob(t, job).Stop(ctx)
	if err == nil || !strings.Contains(err.Error(), "not all have ended: peer 0 (pid ") ||
		!strings.Contains(err.Error(), "did not accept the request") || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
	peer.Wait()
}

// hangUp closes every connection at once. At connection number nth it also calls the function then.
func hangUp(l net.Listener, nth int, then func()) {
	for i := 1; ; i++ {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if i == nth {
			then()
		}
		_ = conn.Close()
	}
}

func TestTerminate(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	Terminate()
	<-ctx.Done()
}
