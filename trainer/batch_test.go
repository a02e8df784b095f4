package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// The methods of a Batch call the functions of its gate, also after Batch.Wrap has changed the gate. A method whose function is nil
// does nothing.
func TestBatch(t *testing.T) {
	grad := []float32{1, 2}
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	useless := errors.New("useless")
	b := trainer.NewBatch([][]int{{4, 5}, {6}}, trainer.Gate{
		Grad:  func(i int) []float32 { note("grad %d", i); return grad },
		Wait:  func(i, from int) { note("wait %d %d", i, from) },
		Done:  func(k, i, from int) { note("done %d %d %d", k, i, from) },
		Loss:  func(k int, sum float64) { note("loss %d %v", k, sum) },
		Err:   func() error { return useless },
		Yield: func() { note("yield") },
	})
	use := func(b *trainer.Batch) (got []string) {
		notes = nil
		b.Wait(1, 2)
		b.Yield()
		b.Done(1, 3)
		b.Loss(7)
		b.Groups()[0].Loss(8)
		b.Groups()[1].Groups()[0].Done(1, 0)
		b.Groups()[0].Add(0, []float32{10, 20})
		return notes
	}
	want := []string{"wait 1 2", "yield", "done 1 1 3", "loss 1 7", "loss 0 8", "done 1 1 0", "grad 0", "done 0 0 0"}
	if got := use(b); !slices.Equal(got, want) || !slices.Equal(grad, []float32{11, 22}) || !errors.Is(b.Err(), useless) {
		t.Errorf("%q, want %q; gradient %v, error %v", got, want, grad, b.Err())
	}
	deaf := b.Wrap(func(g *trainer.Gate) { g.Yield, g.Done, g.Err = nil, nil, nil })
	if got := use(deaf); !slices.Equal(got, []string{"wait 1 2", "loss 1 7", "loss 0 8", "grad 0"}) || deaf.Err() != nil {
		t.Errorf("%q with parts of the gate, error %v", got, deaf.Err())
	}
	for name, b := range map[string]*trainer.Batch{"batch": b, "wrapped": deaf} {
		if !slices.Equal(b.Samples(), []int{4, 5, 6}) || len(b.Groups()) != 2 || !slices.Equal(b.Groups()[1].Samples(), []int{6}) {
			t.Errorf("%s: samples %v, groups %d", name, b.Samples(), len(b.Groups()))
		}
	}
	empty := trainer.NewBatch([][]int{{1}}, trainer.Gate{Grad: func(int) []float32 { return grad }})
	empty.Groups()[0].Wait(0, 0)
	empty.Loss(1)
	empty.Add(0, []float32{0, 0})
	if empty.Yield(); empty.Err() != nil || len(empty.Groups()) != 1 || empty.Groups()[0] != empty {
		t.Errorf("groups %v, error %v", empty.Groups(), empty.Err())
	}
	defer func() {
		if s := fmt.Sprint(recover()); !strings.Contains(s, "another length") {
			t.Errorf("recovered %v", s)
		}
	}()
	empty.Add(0, []float32{1})
}

// The job ends if a model declares Waits and does not wait, because the model might read parameters of the previous step. The job
// also ends if a model waits for a parameter that does not exist.
func TestUnreadParameters(t *testing.T) {
	for want, wait := range map[string]func(b *trainer.Batch){
		"did not call Wait(1, 0) for p1":                        func(b *trainer.Batch) { b.Wait(0, 0); b.Wait(1, 1) },
		"called Wait(2, 0): want a parameter from 0 to 1":       func(b *trainer.Batch) { b.Wait(2, 0) },
		"called Wait(-1, 0): want a parameter from 0 to 1":      func(b *trainer.Batch) { b.Wait(-1, 0) },
		"called Wait(0, -1): want a parameter":                  func(b *trainer.Batch) { b.Wait(0, -1) },
		"Done(1, 4) out of range, twice or out of order":        func(b *trainer.Batch) { b.Wait(0, 0); b.Wait(1, 0); b.Done(1, 4) },
		"trainer: after step 0 of 2: step 1: microbatches [0]:": func(*trainer.Batch) {},
	} {
		runGroups(t, 1, nil, func(ctx context.Context, g *elastic.Group) error {
			m, cfg := newCounter(2, 4).Model(), counting(0)
			cfg.Steps = 2
			gradient := m.Gradient
			m.Waits = true
			m.Gradient = func(b *trainer.Batch) (float64, error) {
				wait(b)
				return gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
			}
			if err := trainer.Run(ctx, g, m, cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			return nil
		})
	}
}

// A panic or runtime.Goexit at any place in Gradient passes through Run. The other peer continues
// without this peer.
func TestModelsThatDoNotReturn(t *testing.T) {
	leave := map[string]func(){"panic": func() { panic("boom") }, "exit": runtime.Goexit}
	for i := range 8 { // one of the calls 9 to 12 begins before the previous step is committed
		for name, leave := range leave {
			call, where := 9+i/2, []string{"forward", "backward"}[i%2]
			runGroups(t, 2, nil, func(ctx context.Context, g *elastic.Group) error {
				m := newCounter(2, 4)
				model, cfg := leaving(m, g.Self().Index == 1, call, where, leave), counting(2)
				if g.Self().Index == 0 {
					return trainer.Run(ctx, g, model, cfg)
				}
				returned, recovered := false, any(nil)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recovered = recover() }()
					_ = trainer.Run(ctx, g, model, cfg)
					returned = true
				}()
				<-done
				if want := map[string]any{"panic": "boom", "exit": nil}[name]; returned || recovered != want {
					t.Errorf("%s in the %s pass of call %d: returned %t, recovered %v", name, where, call, returned, recovered)
				}
				return g.Close()
			})
		}
	}
}

// leaving returns a model with Waits. If leaves is set, the model runs leave in the given call, in the middle of the forward or the
// backward pass.
func leaving(m *counter, leaves bool, call int, where string, leave func()) trainer.Model {
	model, calls := m.Model(), 0
	gradient := model.Gradient
	model.Waits = true
	model.Gradient = func(b *trainer.Batch) (float64, error) {
		calls++
		for i := range m.params {
			b.Wait(i, 0)
		}
		if leaves && calls == call && where == "forward" {
			leave()
		}
		b.Grad(0)
		if leaves && calls == call {
			leave()
		}
		return gradient(b)
	}
	return model
}
