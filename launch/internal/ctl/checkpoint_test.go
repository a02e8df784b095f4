package ctl

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/elastic/wish"
)

// serveSaves serves two peers of a job that answer wishes for checkpoints by one function, which gets the index of the peer.
func serveSaves(t *testing.T, save func(index int, since int64) (wish.Saved, error)) (*Job, []*Control) {
	t.Helper()
	job := testJob(t)
	var all []*Control
	var mu sync.Mutex // save needs no lock of its own
	for i := range 2 {
		c, err := Serve(SocketName{job, i, 100 + i}, Services{Save: func(_ context.Context, since int64) (wish.Saved, error) {
			mu.Lock()
			defer mu.Unlock()
			return save(i, since)
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return Of(job), all
}

// A wish is made again until it is settled: at another peer if one cannot take it, with the answer of the one before.
func TestCheckpoint(t *testing.T) {
	asked := 0
	job, _ := serveSaves(t, func(index int, since int64) (wish.Saved, error) {
		asked++
		switch {
		case index == 0:
			return wish.Saved{}, errors.New("no member")
		case since == 0:
			return wish.Saved{Since: 5, By: "second"}, nil
		case since == 5 && asked < 5:
			return wish.Saved{Since: 5}, nil
		}
		return wish.Saved{Since: since, Step: 6, Path: "/ck/6"}, nil
	})
	if s, err := job.Checkpoint(t.Context(), false); err != nil || s.Path != "" || s.Since != 5 || s.By != "second" {
		t.Errorf("without waiting: %+v, error %v", s, err)
	}
	if s, err := job.Checkpoint(t.Context(), true); err != nil || s.Path != "/ck/6" || s.Step != 6 || asked < 5 {
		t.Errorf("%+v after %d questions, error %v", s, asked, err)
	}
}

// A wish that is refused, a job that ends, and the end of the context end the wait with an error.
func TestCheckpointFails(t *testing.T) {
	job, _ := serveSaves(t, func(int, int64) (wish.Saved, error) { return wish.Saved{Since: 1, Failed: "no folder"}, nil })
	if _, err := job.Checkpoint(t.Context(), true); err == nil || !strings.HasSuffix(err.Error(), ": no folder") {
		t.Errorf("refused: error %v", err)
	}
	t.Run("end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		job, _ := serveSaves(t, func(int, int64) (wish.Saved, error) {
			cancel(errors.New("enough"))
			return wish.Saved{Since: 1}, nil
		})
		if _, err := job.Checkpoint(ctx, true); err == nil || !strings.Contains(err.Error(), "the wish stands") || !strings.HasSuffix(err.Error(), ": enough") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("end of the job", func(t *testing.T) {
		ended := make(chan struct{})
		once := sync.OnceFunc(func() { close(ended) })
		job, all := serveSaves(t, func(int, int64) (wish.Saved, error) {
			once()
			return wish.Saved{Since: 1}, nil
		})
		go func() {
			<-ended
			for _, c := range all {
				_ = c.Close()
			}
		}()
		if _, err := job.Checkpoint(t.Context(), true); !errors.Is(err, ErrNoJob) {
			t.Errorf("error %v", err)
		}
	})
}
