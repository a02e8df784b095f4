package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// pair starts two hosts that know each other; host 0 answers requests with f.
func pair(t testing.TB, cfg p2p.Config, f func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) []*p2p.Host {
	t.Helper()
	hs, v := hosts(t, 2, cfg)
	introduce(t, hs, v)
	hs[0].Serve(f)
	return hs
}

// pattern returns n bytes that differ by position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// ask returns the whole answer of host 0 to host 1.
func ask(t testing.TB, hs []*p2p.Host, request string) ([]byte, error) {
	t.Helper()
	a, err := hs[1].Request(within(t, long), hs[0].ID(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(a)
	return b, errors.Join(err, a.Close(), a.Close())
}

func TestBulk(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			data := pattern(3 << 20)
			hs := pair(t, cfg, func(_ context.Context, from elastic.ID, request []byte, w io.Writer) error {
				n := 0
				if _, err := fmt.Sscan(string(request), &n); err != nil {
					return err
				}
				_, err := w.Write(data[:n])
				return err
			})
			for _, n := range []int{0, 1, 64 << 10, 64<<10 + 1, len(data)} {
				got, err := ask(t, hs, fmt.Sprint(n))
				if err != nil || !bytes.Equal(got, data[:n]) {
					t.Errorf("asked for %d bytes, got %d, %v", n, len(got), err)
				}
			}
			if got, err := ask(t, hs, "none"); err == nil {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
}

// A request fails if the answering side breaks off its answer, or never answers; a truncated answer
// is not reported as complete.
func TestBulkBrokenOffByServer(t *testing.T) {
	hs := pair(t, configs()["tls"], func(_ context.Context, _ elastic.ID, request []byte, w io.Writer) error {
		if _, err := w.Write(make([]byte, len(request))); err != nil {
			return err
		}
		return errors.New("changed my mind")
	})
	for _, n := range []int{0, 10, 64 << 10} {
		if got, err := ask(t, hs, strings.Repeat("x", n)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	a, err := hs[0].Request(within(t, long), hs[1].ID(), nil) // host 1 does not serve
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(a); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("got %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// A member that answers as many requests of a peer as it may still answers the questions of the peer.
func TestExchangeBesideRequests(t *testing.T) {
	begun, ended := make(chan bool), make(chan bool)
	hs := pair(t, configs()["tls"], func(ctx context.Context, _ elastic.ID, _ []byte, _ io.Writer) error {
		begun <- true
		<-ctx.Done()
		ended <- true
		return ctx.Err()
	})
	const most = 8 // maxAnswersTo of package mesh
	var answers []io.Closer
	for range most {
		a, err := hs[1].Request(within(t, long), hs[0].ID(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
		<-begun
	}
	if _, err := hs[1].Exchange(within(t, long), hs[0].ID(), false); err != nil {
		t.Error(err)
	}
	for _, a := range answers {
		_ = a.Close()
		<-ended
	}
}

// endless sends an answer without end, and reports the error that ended it.
func endless(ended chan<- error) func(context.Context, elastic.ID, []byte, io.Writer) error {
	return func(ctx context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
		b := make([]byte, 100_000)
		for {
			if _, err := w.Write(b); err != nil {
				<-ctx.Done() // ends, too
				ended <- err
				return err
			}
		}
	}
}

// The asking side can cancel by Close or by its ctx; then the answering side gets an error. The
// answering side also gets an error when one host closes or forgets the other.
func TestBulkBrokenOffByReader(t *testing.T) {
	for name, end := range map[string]func(hs []*p2p.Host, a io.Closer, cancel func()) error{
		"close":       func(_ []*p2p.Host, a io.Closer, _ func()) error { return a.Close() },
		"cancel":      func(_ []*p2p.Host, _ io.Closer, cancel func()) error { cancel(); return nil },
		"host closes": func(hs []*p2p.Host, _ io.Closer, _ func()) error { return hs[1].Close() },
		"forgotten":   func(hs []*p2p.Host, _ io.Closer, _ func()) error { hs[0].Forget(hs[1].ID()); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			hs := pair(t, configs()["tls"], endless(ended))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a, err := hs[1].Request(ctx, hs[0].ID(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(a, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			if err := end(hs, a, cancel); err != nil {
				t.Error(err)
			}
			select {
			case <-ended:
			case <-within(t, long).Done():
				t.Error("the answer goes on")
			}
			if _, err := io.Copy(io.Discard, a); err == nil {
				t.Error("read to the end")
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Requests beyond a peer's limit are refused after a moment. When some have ended new ones are
// accepted.
func TestBulkLimit(t *testing.T) {
	const limit = 8
	begun, goOn := make(chan struct{}, limit), make(chan struct{})
	hs := pair(t, configs()["tls"], func(ctx context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
		begun <- struct{}{}
		<-goOn
		_, err := w.Write([]byte("done"))
		return err
	})
	var all sync.WaitGroup
	for range limit {
		all.Go(func() {
			if got, err := ask(t, hs, ""); err != nil || string(got) != "done" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	for range limit {
		<-begun
	}
	if _, err := ask(t, hs, ""); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("one too many: %v", err)
	}
	close(goOn)
	all.Wait()
	if _, err := ask(t, hs, ""); err != nil {
		t.Error(err)
	}
}

func TestBulkArguments(t *testing.T) {
	t.Parallel() // it waits
	hs := pair(t, configs()["tls"], endless(make(chan error, 1)))
	if _, err := hs[1].Request(t.Context(), hs[0].ID(), make([]byte, elastic.MaxRequest+1)); err == nil {
		t.Error("a request above the limit was sent")
	}
	if _, err := hs[1].Request(t.Context(), "nobody", nil); err == nil {
		t.Error("asked an ID that is none")
	}
	if err := hs[0].Close(); err != nil {
		t.Error(err)
	}
	if a, err := hs[1].Request(within(t, long), hs[0].ID(), nil); err == nil {
		if _, err = io.ReadAll(a); err == nil {
			t.Error("asked the dead")
		}
		_ = a.Close()
	}
}

// latency sends n messages from host 1 to host 0 and back, and returns the longest one-way time.
func latency(t testing.TB, hs []*p2p.Host, n int) (longest time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		for at := range 2 {
			send(t, hs, 1-at, at, "ping")
			for e := event(t, hs, at); !strings.HasSuffix(e, "ping"); {
				e = event(t, hs, at)
			}
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// Messages arrive during a large answer. The time they take is only logged, as it depends on the
// machine.
func TestControlBesideBulk(t *testing.T) {
	const size = 64 << 20
	cfg, data := configs()["tls"], pattern(size)
	hs := pair(t, cfg, func(_ context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	alone := latency(t, hs, 20)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		if got, err := ask(t, hs, ""); err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}()
	var beside time.Duration
	count := 0
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
			beside = max(beside, latency(t, hs, 1))
			count++
		}
	}
	t.Logf("%d MiB in %v; longest round trip of %d messages beside it %v, alone %v",
		size>>20, time.Since(began), count, beside, alone)
}
