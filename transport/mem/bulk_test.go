package mem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

// endpoints returns the endpoints of a and b on a new network. b answers requests with f.
func endpoints(t *testing.T, f func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) (w *mem.Network, a, b elastic.Endpoint) {
	w = mem.NewNetwork()
	a, b = w.Endpoint(elastic.Member{ID: "a"}), w.Endpoint(elastic.Member{ID: "b"})
	b.Network.Serve(f)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, a, b
}

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := endpoints(t, func(_ context.Context, from elastic.ID, request []byte, w io.Writer) error {
			for range 100 {
				if _, err := fmt.Fprintf(w, "%s asked %s\n", from, request); err != nil {
					return err
				}
			}
			return nil
		})
		for range 2 {
			request := []byte("why")
			r, err := a.Network.Request(t.Context(), "b", request)
			if err != nil {
				t.Fatal(err)
			}
			clear(request) // the request belongs to the caller again
			got, err := io.ReadAll(r)
			if want := bytes.Repeat([]byte("a asked why\n"), 100); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%q, %v", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// If an answer is broken off, both sides see it at once, whatever the cause.
func TestRequestBrokenOff(t *testing.T) {
	errMine := errors.New("mine")
	tests := map[string]func(w *mem.Network, r io.Closer, cancel context.CancelCauseFunc) error{
		"the asker closes":       func(_ *mem.Network, r io.Closer, _ context.CancelCauseFunc) error { return r.Close() },
		"its ctx ends":           func(_ *mem.Network, _ io.Closer, cancel context.CancelCauseFunc) error { cancel(errMine); return nil },
		"the asker is killed":    func(w *mem.Network, _ io.Closer, _ context.CancelCauseFunc) error { w.Kill("a"); return nil },
		"the answerer is killed": func(w *mem.Network, _ io.Closer, _ context.CancelCauseFunc) error { w.Kill("b"); return nil },
		"the answerer leaves": func(w *mem.Network, _ io.Closer, _ context.CancelCauseFunc) error {
			return w.Member("b").Close()
		},
	}
	for name, act := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answered := make(chan error, 1)
				w, a, _ := endpoints(t, func(ctx context.Context, _ elastic.ID, _ []byte, w io.Writer) error {
					piece := make([]byte, 128<<10) // more than the sender buffers
					_, err := w.Write(piece)
					<-ctx.Done()
					_, again := w.Write(piece)
					answered <- again
					return err
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r, err := a.Network.Request(ctx, "b", nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
					t.Error(err)
				}
				if err := act(w, r, cancel); err != nil {
					t.Error(err)
				}
				if n, err := io.Copy(io.Discard, r); err == nil {
					t.Errorf("the asker read %d bytes more, to an end in good order", n)
				}
				if <-answered == nil {
					t.Error("the answerer wrote on")
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An error of the answering side never looks like a complete answer.
func TestAnswerFails(t *testing.T) {
	for _, cause := range []error{errors.New("disk full"), io.EOF} {
		synctest.Test(t, func(t *testing.T) {
			_, a, _ := endpoints(t, func(context.Context, elastic.ID, []byte, io.Writer) error { return cause })
			r, err := a.Network.Request(t.Context(), "b", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r); err == nil {
				t.Error("a good end")
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRequestErrors(t *testing.T) {
	w, a, b := endpoints(t, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Network.Request(ended, "b", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	for what, ask := range map[string]func() (io.ReadCloser, error){
		"too long": func() (io.ReadCloser, error) {
			return a.Network.Request(t.Context(), "b", make([]byte, elastic.MaxRequest+1))
		},
		"to itself": func() (io.ReadCloser, error) { return a.Network.Request(t.Context(), "a", nil) },
	} {
		if _, err := ask(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if r, err := a.Network.Request(t.Context(), "b", nil); err != nil {
		t.Error(err)
	} else if _, err := io.ReadAll(r); err == nil {
		t.Error("an answer without a handler")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Network.Request(t.Context(), "b", nil); err == nil {
		t.Error("asked one that has left")
	}
	w.Kill("a")
	if _, err := a.Network.Request(t.Context(), "b", nil); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("asked by the dead: %v", err)
	}
}
