package simnet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// state returns the state that members serve in these tests: bytes with different values at neighbouring positions.
func state(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return out
}

// serve makes a member answer every request with data.
func serve(e elastic.Endpoint, data []byte) {
	e.Network.Serve(func(_ context.Context, _ elastic.ID, request []byte, w io.Writer) error {
		_, err := w.Write(append(request, data...))
		return err
	})
}

// fetch sends a request to a member, and reads the whole answer.
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

// If an answer is interrupted, both sides get an error, for each cause.
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
					for err == nil { // without a reader the write blocks
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

// Each answer is complete on links of any speed, with pauses at both sides, and with several
// answers at a time. No call waits for ever for an acknowledgement or for room in a buffer.
func TestRequestsEnd(t *testing.T) {
	const members, requests = 3, 3 // requests to each other member at a time
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		link := simnet.Link{Delay: time.Duration(random.IntN(200)) * time.Millisecond, Bandwidth: 64 << 10 << random.IntN(8)}
		inBubble(t, members, simnet.Config{Seed: seed, Link: link}, func(t *testing.T, b *bench) {
			var asking sync.WaitGroup
			for at := range members {
				b.ends[at].Network.Serve(pausing)
				for to := range members * requests {
					if to %= members; to == at {
						continue
					}
					r, size := rand.New(rand.NewPCG(seed, random.Uint64())), random.IntN(1<<19)
					asking.Go(func() {
						if err := b.readSlowly(t.Context(), r, at, b.ends[to].Self.ID, size); err != nil {
							t.Errorf("seed %d: %d bytes from %d to %d: %v", seed, size, to, at, err)
						}
					})
				}
			}
			asking.Wait()
		})
	}
}

// pausing answers a request with the number of bytes that it asks for, in parts, with pauses between them.
func pausing(ctx context.Context, _ elastic.ID, request []byte, w io.Writer) error {
	size := int(binary.LittleEndian.Uint32(request))
	random, data := rand.New(rand.NewPCG(uint64(size), 2)), state(size)
	for len(data) > 0 {
		n, err := w.Write(data[:min(len(data), 1+random.IntN(200_000))])
		if err != nil {
			return err
		}
		data = data[n:]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(random.IntN(300)) * time.Millisecond):
		}
	}
	return nil
}

// readSlowly requests a number of bytes. It pauses now and then while it reads them.
func (b *bench) readSlowly(ctx context.Context, random *rand.Rand, at int, from elastic.ID, size int) error {
	r, err := b.ends[at].Network.Request(ctx, from, binary.LittleEndian.AppendUint32(nil, uint32(size)))
	if err != nil {
		return err
	}
	var all []byte
	for buf := make([]byte, 100_000); err == nil; {
		var n int
		n, err = r.Read(buf[:1+random.IntN(len(buf))])
		all = append(all, buf[:n]...)
		if random.IntN(10) == 0 {
			<-time.After(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
	}
	if err == io.EOF && !bytes.Equal(all, state(size)) {
		return fmt.Errorf("%d bytes, or others", len(all))
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, r.Close())
}

// A short message does not wait for the end of a long answer.
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
			t.Errorf("received after %v", d)
		}
		if err := r.Close(); err != nil || <-done == nil {
			t.Error("closed early, but read to the end", err)
		}
	})
}
