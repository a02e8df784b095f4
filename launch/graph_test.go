package launch_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// together sums the ranks of all peers, which shows that they form one group, and reports a
// result.
func together(ctx context.Context, g *elastic.Group) error {
	var step int64
	total := make([]int64, 1)
	for t := range g.Steps(ctx, elastic.Vectors(&step, &total), 3) {
		sum := []int64{int64(t.Rank)}
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err != nil {
			continue
		}
		total[0] += sum[0]
		step++
	}
	return g.Err()
}

// A call returns the result of the service, or the text of its error, from any node.
func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := launch.NewProgram("p")
		double := launch.Serve(p, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
		twice := launch.Serve(p, "twice", func(ctx context.Context, n int) (int, error) {
			once, err := double.Call(ctx, n)
			if err != nil {
				return 0, err
			}
			return double.Call(ctx, once)
		})
		refuse := launch.Serve(p, "refuse", func(_ context.Context, r string) (string, error) { return "", errors.New("no " + r) })
		var calls atomic.Int64
		check := func(ctx context.Context) error {
			calls.Add(1)
			if got, err := twice.Go(ctx, 3).Result(); err != nil || got != 12 {
				t.Errorf("got %d, %v, want 12", got, err)
			}
			if _, err := refuse.Call(ctx, "way"); !errors.Is(err, launch.ErrHandler) || !strings.Contains(err.Error(), "no way") {
				t.Errorf("got %v, want that the handler failed with no way", err)
			}
			return nil
		}
		p.Peers("train", 3, func(ctx context.Context, g *elastic.Group) error { return errors.Join(check(ctx), together(ctx, g)) })
		p.Task("look", check)
		result, err := p.Run(t.Context(), launch.Goroutines())
		if err != nil || result.Done == nil || result.Done.Peers != 3 || calls.Load() != 4 {
			t.Errorf("got %+v, %v after %d calls", result, err, calls.Load())
		}
		if _, err := double.Call(t.Context(), 1); !errors.Is(err, launch.ErrUnreachable) {
			t.Errorf("after the end: got %v, want ErrUnreachable", err)
		}
	})
}

// Requests and results are copied, even within one process. Go has copied the request when it
// returns.
func TestHandleCopies(t *testing.T) {
	p := launch.NewProgram("p")
	kept := make([]float32, 2)
	give := launch.Serve(p, "keep", func(_ context.Context, v []float32) ([]float32, error) {
		v[0]++
		copy(kept, v)
		return kept, nil
	})
	p.Peers("train", 1, together)
	p.Task("call", func(ctx context.Context) error {
		mine := []float32{1, 2}
		f := give.Go(ctx, mine)
		mine[0], mine[1] = 7, 7
		got, err := f.Result()
		if err != nil || got[0] != 2 || got[1] != 2 || mine[0] != 7 || &got[0] == &kept[0] {
			t.Errorf("got %v, %v; have %v", got, err, mine)
		}
		return nil
	})
	if _, err := p.Run(t.Context(), launch.Goroutines()); err != nil {
		t.Error(err)
	}
}

// The deadline of a caller ends the call in the caller and in the service.
func TestHandleDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := launch.NewProgram("p")
		told := make(chan error, 1)
		slow := launch.Serve(p, "slow", func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			told <- ctx.Err()
			return 0, ctx.Err()
		})
		p.Peers("train", 1, together)
		p.Task("call", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			if _, err := slow.Call(ctx, 1); err == nil || errors.Is(err, launch.ErrUnreachable) {
				t.Errorf("got %v, want that the deadline is over", err)
			}
			return nil
		})
		begun := time.Now()
		if _, err := p.Run(t.Context(), launch.Goroutines()); err != nil {
			t.Error(err)
		}
		if err := <-told; err == nil || time.Since(begun) > time.Hour+time.Second {
			t.Errorf("the handler was told %v after %v", err, time.Since(begun))
		}
	})
}

// A task is restarted as often as allowed, and its last error is the error of the program.
func TestTaskRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := launch.NewProgram("p")
		var tries int
		p.Peers("train", 2, together)
		p.Task("fail", func(context.Context) error {
			tries++
			return errors.New("no luck")
		}, launch.Restart(3, time.Minute))
		begun := time.Now()
		_, err := p.Run(t.Context(), launch.Goroutines())
		if err == nil || !strings.Contains(err.Error(), "task fail: no luck") || tries != 4 {
			t.Errorf("got %v after %d tries", err, tries)
		}
		if took := time.Since(begun); took < 2*time.Minute {
			t.Errorf("the pauses took %v", took) // no pause, one minute, and at most one more
		}
	})
}

// If the peers end without a result, tasks are cancelled and the program returns the peers' error.
func TestPeersFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := launch.NewProgram("p")
		p.Peers("train", 2, func(context.Context, *elastic.Group) error { return errors.New("no data") })
		p.Task("wait", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if _, err := p.Run(t.Context(), launch.Goroutines()); err == nil || !strings.Contains(err.Error(), "no data") {
			t.Errorf("got %v, want that there is no data", err)
		}
	})
}

// Mistakes in a program are reported before any node is started.
func TestDeclarations(t *testing.T) {
	peers := func(p *launch.Program) { p.Peers("train", 1, together) }
	ok := func(_ context.Context, n int) (int, error) { return n, nil }
	for want, declare := range map[string]func(p *launch.Program){
		"0 nodes of peers":           func(*launch.Program) {},
		"node train: 0 peers":        func(p *launch.Program) { p.Peers("train", 0, together) },
		"node train has no function": func(p *launch.Program) { p.Peers("train", 1, nil) },
		`two nodes are named "train"`: func(p *launch.Program) {
			peers(p)
			launch.Serve(p, "train", ok)
		},
		`two nodes are named "a"`: func(p *launch.Program) {
			peers(p)
			launch.Serve(p, "a", ok)
			launch.Serve(p, "a", ok)
		},
		`two methods are named "a/x"`: func(p *launch.Program) {
			peers(p)
			launch.Serve(p, "a/x", ok)
			launch.Serve(p, "a/x", ok)
		},
		"service a: a chan int cannot be sent": func(p *launch.Program) {
			peers(p)
			launch.Serve(p, "a", func(context.Context, chan int) (int, error) { return 0, nil })
		},
		"service a has no function": func(p *launch.Program) {
			peers(p)
			launch.Serve[int, int](p, "a", nil)
		},
		`stops after "b", which is no service`: func(p *launch.Program) {
			peers(p)
			launch.Serve(p, "a", ok, launch.StopAfter("b"))
		},
	} {
		p := launch.NewProgram("p")
		declare(p)
		_, err := p.Run(t.Context(), launch.Goroutines())
		if !errors.Is(err, launch.ErrProgram) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestHandleOfNothing(t *testing.T) {
	var h launch.Handle[int, int]
	if _, err := h.Call(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "belongs to no service") {
		t.Errorf("got %v", err)
	}
	h = launch.Serve(launch.NewProgram("p"), "a", func(_ context.Context, n int) (int, error) { return n, nil })
	if _, err := h.Go(t.Context(), 1).Result(); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("got %v", err)
	}
}
