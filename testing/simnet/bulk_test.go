package simnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// state is what members hand out in these tests: bytes that differ everywhere.
func state(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return out
}

// serve lets a member answer every request with data.
func serve(e elastic.Endpoint, data []byte) {
	e.Network.Serve(func(_ context.Context, _ elastic.ID, request []byte, w io.Writer) error {
		_, err := w.Write(append(request, data...))
		return err
	})
}

// fetch asks a member and reads the answer to its end.
func (b *bench) fetch(ctx context.Context, at int, from elastic.ID, request string) ([]byte, error) {
	r, err := b.ends[at].Network.Request(ctx, from, []byte(request))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(r)
	return out, errors.Join(err, r.Close())
}

func TestRequest(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		data := state(3<<20 + 5)
		serve(b.ends[1], data)
		for range 2 {
			got, err := b.fetch(t.Context(), 0, "b", "why")
			if err != nil || !bytes.Equal(got, append([]byte("why"), data...)) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
	})
}

func TestRequestErrors(t *testing.T) {
	inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.fetch(ended, 0, "b", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}
		if _, err := b.fetch(t.Context(), 0, "b", ""); err == nil {
			t.Error("nobody answers")
		}
		if _, err := b.fetch(t.Context(), 0, "a", ""); err == nil {
			t.Error("asked itself")
		}
		if _, err := b.fetch(t.Context(), 0, "b", string(make([]byte, elastic.MaxRequest+1))); err == nil {
			t.Error("too long")
		}
		for _, cause := range []error{errors.New("disk full"), io.EOF} {
			b.ends[1].Network.Serve(func(_ context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
				_, err := w.Write([]byte("half"))
				return errors.Join(err, cause)
			})
			if got, err := b.fetch(t.Context(), 0, "b", ""); err == nil || !strings.HasPrefix("half", string(got)) {
				t.Errorf("broken off with %v: %q, %v", cause, got, err)
			}
		}
		b.Kill("a")
		if _, err := b.fetch(t.Context(), 0, "b", ""); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("asked by the dead: %v", err)
		}
	})
}

// However an answer is broken off, both sides see it.
func TestRequestBrokenOff(t *testing.T) {
	errMine := errors.New("mine")
	tests := map[string]func(b *bench, r io.Closer, cancel context.CancelCauseFunc){
		"the asker closes":       func(b *bench, r io.Closer, _ context.CancelCauseFunc) { _ = r.Close() },
		"its ctx ends":           func(_ *bench, _ io.Closer, cancel context.CancelCauseFunc) { cancel(errMine) },
		"the asker is killed":    func(b *bench, _ io.Closer, _ context.CancelCauseFunc) { b.Kill("a") },
		"the answerer is killed": func(b *bench, _ io.Closer, _ context.CancelCauseFunc) { b.Kill("b") },
		"the answerer leaves":    func(b *bench, _ io.Closer, _ context.CancelCauseFunc) { _ = b.ends[1].Close() },
		"the network closes":     func(b *bench, _ io.Closer, _ context.CancelCauseFunc) { _ = b.Close() },
		"a reset":                func(b *bench, _ io.Closer, _ context.CancelCauseFunc) { b.Reset("a", "b") },
	}
	for name, act := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, simnet.Config{Link: simnet.Link{Delay: time.Millisecond}}, func(t *testing.T, b *bench) {
				wrote := make(chan error, 1)
				b.ends[1].Network.Serve(func(ctx context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
					var err error
					for err == nil { // nobody reads: it blocks
						_, err = w.Write(state(1 << 20))
					}
					wrote <- errors.Join(ctx.Err(), err)
					return err
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r, err := b.ends[0].Network.Request(ctx, "b", nil)
				if err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				act(b, r, cancel)
				if <-wrote == nil {
					t.Error("the answerer wrote on")
				}
				if _, err := io.ReadAll(r); err == nil {
					t.Error("the asker saw a good end")
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What is short does not wait behind what is long.
func TestBandwidthIsFair(t *testing.T) {
	inBubble(t, 2, simnet.Config{Link: simnet.Link{Bandwidth: 1 << 20}}, func(t *testing.T, b *bench) {
		serve(b.ends[1], state(100<<20))
		r, err := b.ends[0].Network.Request(t.Context(), "b", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := begin(func() error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
		synctest.Wait()
		start := time.Now()
		b.say(1, 0, "short")
		b.hears(0, "b up", "b says short")
		if d := time.Since(start); d > time.Second/4 {
			t.Errorf("heard after %v", d)
		}
		if err := r.Close(); err != nil || <-done == nil {
			t.Error("closed early, but read to the end", err)
		}
	})
}
