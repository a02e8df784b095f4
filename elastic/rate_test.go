package elastic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// trickle is a Source whose answers arrive in pieces of one size, each after a pause.
type trickle struct {
	pieces, size int
	pause        time.Duration
}

func (t trickle) Request(context.Context, string, []byte) (io.ReadCloser, error) {
	if t.pieces == 0 {
		return nil, errors.New("no process listens at the peer's addresses")
	}
	return io.NopCloser(&trickling{t, nil}), nil
}

// trickling is one answer of a trickle.
type trickling struct {
	trickle
	rest *bytes.Reader
}

func (t *trickling) Read(b []byte) (int, error) {
	if t.rest == nil || t.rest.Len() == 0 {
		if t.pieces == 0 {
			return 0, io.EOF
		}
		<-time.After(t.pause)
		t.pieces--
		t.rest = bytes.NewReader(make([]byte, t.size))
	}
	return t.rest.Read(b)
}

// The rate of concurrent streams is the sum of their rates, and below leastMeasured bytes there is
// no rate.
func TestRated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rated{Source: trickle{101, 100_000, time.Millisecond}}
		read := func() {
			a, err := r.Request(t.Context(), "donor", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, a); n != 10_100_000 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			if err := errors.Join(a.Close(), a.Close()); err != nil {
				t.Error(err)
			}
		}
		if got := r.rate(); got != 0 {
			t.Errorf("rate %d of nothing", got)
		}
		var both sync.WaitGroup
		both.Go(read)
		both.Go(read)
		both.Wait()
		if got := r.rate(); got < 195_000_000 || got > 205_000_000 {
			t.Errorf("two streams of 100 MB/s: %d bytes a second", got)
		}
		<-time.After(time.Hour) // without any stream
		read()
		if got := r.rate(); got < 145_000_000 || got > 155_000_000 {
			t.Errorf("two streams, and then one: %d bytes a second", got)
		}
		r = &rated{Source: trickle{9, 100_000, time.Millisecond}}
		a, err := r.Request(t.Context(), "donor", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(a, make([]byte, 500_000))
		if err := a.Close(); err != nil || r.rate() != 0 || r.running != 0 {
			t.Errorf("after 500 kB: rate %d, %d running, %v", r.rate(), r.running, err)
		}
		if _, err := (&rated{Source: trickle{}}).Request(t.Context(), "donor", nil); err == nil {
			t.Error("no error of the source")
		}
	})
}
