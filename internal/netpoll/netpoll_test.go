package netpoll

import (
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trips lets a goroutine make n round trips of a byte over a socket. Meanwhile this goroutine computes in pieces of the given
// duration, and calls turn after each piece. trips returns the number of pieces.
func trips(tb testing.TB, n int, work time.Duration, turn func()) (pieces int) {
	tb.Helper()
	// Bytes written to a Unix socket can be read as soon as Write returns.
	l, err := net.Listen("unix", filepath.Join(tb.TempDir(), "trips"))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		echoed <- err
	}()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		for range n {
			if _, err := c.Write(b); err != nil {
				done <- err
				return
			}
			if _, err := io.ReadFull(c, b); err != nil {
				done <- err
				return
			}
		}
		done <- c.Close()
	}()
	for {
		select {
		case err := <-done:
			if err == nil {
				err = <-echoed
			}
			if err != nil {
				tb.Fatal(err)
			}
			return pieces
		default:
		}
		for begun := time.Now(); time.Since(begun) < work; {
		}
		turn()
		pieces++
	}
}

// onOne sets GOMAXPROCS to 1 and returns an Engine. The end of the test closes the Engine and
// restores GOMAXPROCS.
func onOne(tb testing.TB) *Engine {
	tb.Helper()
	before := runtime.GOMAXPROCS(1)
	tb.Cleanup(func() { runtime.GOMAXPROCS(before) })
	e, err := New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// On one processor a round trip takes one Poll for each end, or a few more.
func TestPoll(t *testing.T) {
	e := onOne(t)
	const n = 100
	if pieces := trips(t, n, 20*time.Microsecond, e.Poll); pieces > 8*n {
		t.Errorf("%d trips took %d turns", n, pieces)
	}
}

// PollIfDue polls at most once in half a millisecond.
func TestPollIfDue(t *testing.T) {
	e := onOne(t)
	e.PollIfDue()
	last := e.lastPoll
	for range 100 {
		if e.PollIfDue(); e.lastPoll != last && e.lastPoll.Sub(last) < minInterval {
			t.Fatalf("a turn %v after the one before", e.lastPoll.Sub(last))
		}
		last = e.lastPoll
	}
}

// With several processors an Engine has no pipe to close, and Poll only yields.
func TestSeveralProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	e, err := New()
	if err != nil {
		t.Fatal(err)
	}
	e.Poll()
	if err := e.Close(); err != nil || e.out != nil {
		t.Errorf("%v, %+v", err, e)
	}
}

// This measures the time of a round trip while another goroutine computes, with an Engine and with Gosched.
func BenchmarkTrip(b *testing.B) {
	for _, way := range []string{"engine", "gosched"} {
		b.Run(way, func(b *testing.B) {
			e := onOne(b)
			turn := e.Poll
			if way == "gosched" {
				turn = runtime.Gosched
			}
			trips(b, b.N, minInterval, turn)
		})
	}
}

// This measures the time of a Poll that finds no message.
func BenchmarkPoll(b *testing.B) {
	e := onOne(b)
	for b.Loop() {
		e.Poll()
	}
}
