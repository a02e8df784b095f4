package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// mortal serves a peer that, asked to stop, does what dying says and is gone then.
func mortal(t *testing.T, job string, index int, dying func()) {
	t.Helper()
	asked := make(chan struct{}, 1)
	c, err := serveControl(socketName{job, index, os.Getpid()},
		services{status: func() Status { return Status{Job: job} }, stop: func() { asked <- struct{}{} }})
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
	serve(t, other, 0, func() Status { return Status{Job: other} }) // is not stopped
	s, err := Stop(t.Context(), job)
	if err != nil || s.Job != job || s.Peers != 3 || s.Took <= 0 {
		t.Errorf("got %+v, %v, want job %s and 3 peers", s, err, job)
	}
	if _, err := Stop(t.Context(), job); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), other) {
		t.Errorf("once more: %v, want ErrNoJob that lists %s", err, other)
	}
}

// A peer that has agreed to end waits for whoever asked to hang up, or for its own end.
func TestStopWaits(t *testing.T) {
	for name, end := range map[string]func(net.Conn, *control) error{
		"hung up": func(conn net.Conn, _ *control) error { return conn.Close() },
		"closed":  func(_ net.Conn, c *control) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			at := socketName{testJob(t), 0, os.Getpid()}
			stopped := make(chan struct{}, 1)
			c, err := serveControl(at, services{stop: func() { stopped <- struct{}{} }})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conn, r, err := open(t.Context(), at, request{Request: "stop"})
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

// A peer that comes while others end is asked, too.
func TestStopDuringStart(t *testing.T) {
	job := testJob(t)
	mortal(t, job, 0, func() { mortal(t, job, 1, func() {}) })
	s, err := Stop(t.Context(), job)
	if want := (Stopped{job, 2, s.Took}); err != nil || s != want {
		t.Errorf("got %+v, %v, want %+v", s, err, want)
	}
}

// The error names those that still run, and only those.
func TestStopStubborn(t *testing.T) {
	job := testJob(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	impatient := errors.New("impatient")
	gone := make(chan struct{})
	mortal(t, job, 0, func() { close(gone) })
	c, err := serveControl(socketName{job, 1, os.Getpid()}, services{stop: func() {
		<-gone
		cancel(impatient)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = Stop(ctx, job)
	if want := fmt.Sprintf("peer 1 (pid %d)", os.Getpid()); !errors.Is(err, impatient) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it, and the cause", err, want)
	}
}

// A peer that hangs up is asked again and again, and the error says why that failed.
func TestStopNotTaken(t *testing.T) {
	job := testJob(t)
	l, err := listenControl(socketName{job, 0, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var peer sync.WaitGroup
	peer.Go(func() { hangUp(l, 3, cancel) })
	_, err = Stop(ctx, job)
	if err == nil || !strings.Contains(err.Error(), "1 of 1 peers still run: peer 0 (pid ") ||
		!strings.Contains(err.Error(), "did not take the request") || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
	peer.Wait()
}

// hangUp ends every connection at once, and calls then at the nth.
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

func TestChooseJob(t *testing.T) {
	for _, c := range []struct {
		job     string
		running []string
		want    string // the job, or part of the error
	}{
		{"a", []string{"a", "b"}, "a"},
		{"", []string{"a"}, "a"},
		{"", []string{"a", "b"}, "name one of a, b"},
		{"", nil, "none is running"},
		{"c", nil, "c; none is running"},
		{"c", []string{"a", "b"}, "c; running: a, b"},
		{"mn", []string{"mnist-abcde", "sweep"}, "mnist-abcde"},
		{"mnist", []string{"mnist-abcde", "mnist"}, "mnist"}, // a whole name before beginnings
		{"mnist-", []string{"mnist-abcde", "mnist-bcdef", "x"}, "could be meant by mnist-: name one of mnist-abcde, mnist-bcdef"},
		{"abcde", []string{"mnist-abcde"}, "abcde; running: mnist-abcde"}, // no end of a name
		{"mnist-abcdef", []string{"mnist-abcde"}, "mnist-abcdef; running"},
	} {
		got, err := chooseJob(c.job, c.running)
		if err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, ErrWhichJob) != strings.Contains(c.want, "name one of") || err != nil && errors.Is(err, ErrNoJob) == errors.Is(err, ErrWhichJob) {
			t.Errorf("%q among %q: %q, %v, want %q", c.job, c.running, got, err, c.want)
		}
	}
}

// A name that is chosen runs, and begins as was asked; every running job can be chosen.
func TestChooseJobProperty(t *testing.T) {
	name := rapid.StringMatching("[ab]{1,3}")
	rapid.Check(t, func(t *rapid.T) {
		running := rapid.SliceOfDistinct(name, rapid.ID).Draw(t, "running")
		job := rapid.OneOf(name, rapid.Just("")).Draw(t, "job")
		got, err := chooseJob(job, running)
		fits := 0
		for _, n := range running {
			if strings.HasPrefix(n, job) {
				fits++
			}
		}
		whole := slices.Contains(running, job)
		switch {
		case err == nil && !(slices.Contains(running, got) && strings.HasPrefix(got, job)):
			t.Fatalf("%q among %q: %q", job, running, got)
		case whole && got != job:
			t.Fatalf("%q among %q: %q, %v", job, running, got, err)
		case (err == nil) != (whole || fits == 1):
			t.Fatalf("%q among %q: %q, %v", job, running, got, err)
		}
	})
}

func TestTerminate(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	terminate()
	<-ctx.Done()
}
