package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a server of methods and a connection to it, which are closed at the end of the
// test.
func start(t *testing.T, methods ...Method) (*Server, *Conn) {
	t.Helper()
	s := NewServer("program", methods)
	t.Cleanup(s.Close)
	ours, theirs := net.Pipe()
	s.ServeConn(theirs)
	c, err := Dial(t.Context(), ours, "program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

// echo returns the request.
func echo(_ context.Context, request []byte) ([]byte, error) { return request, nil }

// wait returns when its context ends.
func wait(ctx context.Context, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestCalls(t *testing.T) {
	errNo := errors.New("no")
	_, c := start(t, echo, func(context.Context, []byte) ([]byte, error) { return nil, errNo })
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			text := strings.Repeat("x", i*1000)
			if got, err := c.Call(t.Context(), 0, []byte(text)); err != nil || string(got) != text {
				t.Errorf("call %d: %d bytes, %v", i, len(got), err)
			}
			var f *Failure
			if _, err := c.Call(t.Context(), 1, nil); !errors.As(err, &f) || f.Text != "no" {
				t.Errorf("got %v, want the failure no", err)
			}
		})
	}
	all.Wait()
}

func TestTooLong(t *testing.T) {
	_, c := start(t, echo, func(context.Context, []byte) ([]byte, error) { return make([]byte, MaxPayload+1), nil })
	if _, err := c.Call(t.Context(), 0, make([]byte, MaxPayload+1)); err == nil {
		t.Error("a request that is too long was sent")
	}
	if _, err := c.Call(t.Context(), 1, nil); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v, want that the result is too long", err)
	}
}

// The context of a method has the caller's deadline and ends when the caller stops waiting.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		_, c := start(t, func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Call(ctx, 0, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the method saw %v, want context.Canceled", err)
		}
		begun := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Call(ctx, 0, nil); err == nil || time.Since(begun) != time.Minute {
			t.Errorf("got %v after %v, want an error after a minute", err, time.Since(begun))
		}
		<-ended
	})
}

// A call whose server ends returns ErrLost, and so does each later call.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := start(t, wait)
		time.AfterFunc(time.Second, s.Close)
		for range 2 {
			if _, err := c.Call(t.Context(), 0, nil); !errors.Is(err, ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
		}
		<-c.Ended()
	})
}

func TestUnknownMethod(t *testing.T) {
	_, c := start(t, echo)
	if _, err := c.Call(t.Context(), 1, nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestRefused(t *testing.T) {
	s := NewServer("program", nil)
	defer s.Close()
	ours, theirs := net.Pipe()
	s.ServeConn(theirs)
	if _, err := Dial(t.Context(), ours, "another"); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
}

// The wait for the other side's hello is bounded on both sides.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer("program", nil)
		ours, theirs := net.Pipe()
		s.ServeConn(theirs)
		if _, err := ours.Read(make([]byte, 1)); err == nil {
			t.Error("the server has said something")
		}
		s.Close()
		silent, other := net.Pipe()
		defer other.Close()
		go func() { _, _ = other.Read(make([]byte, headerSize+len("program"))) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Dial(ctx, silent, "program"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the deadline is over", err)
		}
	})
}

// Calls beyond maxCalls wait, and a waiting call ends with its context.
func TestManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := start(t, wait, echo)
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range maxCalls + 10 {
			all.Go(func() { _, _ = c.Call(ctx, 0, nil) })
		}
		synctest.Wait()
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := c.Call(late, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the deadline is over", err)
		}
		s.Close()
		cancel()
		all.Wait()
	})
}
