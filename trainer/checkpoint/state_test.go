package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// sums is the state of a loop with elements of several types. After step n each sum is that of the
// numbers 1 to n, times the samples of a step.
type sums struct {
	step  int64
	f64   []float64
	f32   []float32
	whole []int
	small []uint8
	half  []dtype.BFloat16
}

const samples = 12

func newSums() *sums {
	return &sums{f64: make([]float64, 3), f32: make([]float32, 1), whole: make([]int, 2), small: make([]uint8, 1), half: make([]dtype.BFloat16, 1)}
}

func (s *sums) tensors() []checkpoint.Tensor {
	return []checkpoint.Tensor{{Name: "f64", Values: &s.f64}, {Name: "f32", Data: s.f32}, {Name: "whole", Shape: []int{1, 2}, Values: s.whole},
		{Name: "small", Values: s.small}, {Name: "half", Values: s.half}}
}

func (s *sums) commit(n float64) {
	s.step++
	s.f64 = slices.Clone(s.f64) // a slice that is given by its address may be replaced
	for i := range s.f64 {
		s.f64[i] += n * float64(s.step)
	}
	s.f32[0]++
	s.whole[1] -= int(n)
	s.small[0]++
	s.half[0] = dtype.ToBFloat16(float32(s.step))
}

// play is what a job of the tests has: its peers, their lines, and their results.
type play struct {
	*cluster.Job
	mu    sync.Mutex
	lines []string
	ended map[int]error
	steps map[int]int64
	begun map[int]int64
}

// Emit keeps the events of checkpoints as lines.
func (p *play) Emit(e event.Event) {
	if b, ok := e.Body.(event.Checkpoint); ok {
		p.logf("%s", filepath.Base(b.Path))
	}
}

func (p *play) logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// start starts n peers that train the sums for a number of steps of 10 ms.
func start(t *testing.T, n int, steps int64, cfg func(index int) checkpoint.Config) *play {
	p := &play{ended: make(map[int]error), steps: make(map[int]int64), begun: make(map[int]int64)}
	network := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond, Lag: time.Millisecond}})
	p.Job = cluster.Start(t, n, network, func(ctx context.Context, g *elastic.Group) error {
		c := cfg(g.Self().Index)
		c.Log = p.logf
		step, begun, err := train(ctx, g, c, steps)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended[g.Self().Index], p.steps[g.Self().Index], p.begun[g.Self().Index] = err, step, begun
		return nil
	}, p)
	return p
}

// train runs the loop of a peer, and checks the sums.
func train(ctx context.Context, g *elastic.Group, c checkpoint.Config, steps int64) (step, begun int64, err error) {
	s := newSums()
	state, err := checkpoint.NewState(g, c, &s.step, s.tensors()...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	begun = s.step
	for t := range g.Steps(ctx, state, steps) {
		lo, hi := t.Part(samples)
		sum := []float64{float64(hi - lo)}
		<-time.After(10 * time.Millisecond)
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue
		}
		s.commit(sum[0])
	}
	if err := g.Err(); err != nil {
		return s.step, begun, err
	}
	want := newSums()
	for want.step < s.step {
		want.commit(samples)
	}
	if !slices.Equal(s.f64, want.f64) || !slices.Equal(s.f32, want.f32) || !slices.Equal(s.whole, want.whole) || !slices.Equal(s.small, want.small) ||
		!slices.Equal(s.half, want.half) {
		return s.step, begun, fmt.Errorf("the state is %+v, want %+v", s, want)
	}
	return s.step, begun, nil
}

// in returns the settings of each peer: a folder, an interval of 10 steps, and a folder to resume from.
func in(dir, resume string) func(int) checkpoint.Config {
	return func(int) checkpoint.Config { return checkpoint.Config{Dir: dir, EverySteps: 10, Resume: resume} }
}

// finish waits for the peers, and checks that the given ones have committed all steps.
func (p *play) finish(t *testing.T, steps int64, indices ...int) {
	t.Helper()
	p.Wait()
	for _, i := range indices {
		if p.ended[i] != nil || p.steps[i] != steps {
			t.Errorf("peer %d: step %d, %v", i, p.steps[i], p.ended[i])
		}
	}
}

// wantFiles checks the steps of the checkpoints in a folder.
func wantFiles(t *testing.T, dir string, steps ...int) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "step-*"))
	var want []string
	for _, s := range steps {
		want = append(want, checkpoint.Path(dir, int64(s)))
	}
	if !slices.Equal(paths, want) {
		t.Errorf("files %v, want %v", paths, want)
	}
}

// A loop saves its state, at rank 0 only, also when peers die and join. Another job resumes from it,
// to the same state as a job without an interruption.
func TestStateResumes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	synctest.Test(t, func(t *testing.T) {
		p := start(t, 3, 57, in(dir, ""))
		<-time.After(200 * time.Millisecond)
		p.Kill(0)
		late := p.Join()
		p.finish(t, 57, 1, 2, late)
		wantFiles(t, dir, 40, 50, 57)
		want := []string{"10", "20", "30", "40", "50", "57"}
		for i, line := range p.lines {
			if len(p.lines) > len(want) || !strings.HasSuffix(line, want[i]+".safetensors") {
				t.Errorf("line %q", line)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := start(t, 4, 80, in(dir, dir))
		p.finish(t, 80, 0, 1, 2, 3)
		wantFiles(t, dir, 60, 70, 80)
		for i := range 4 {
			if p.begun[i] != 57 {
				t.Errorf("peer %d begins after step %d", i, p.begun[i])
			}
		}
		if !strings.HasPrefix(p.lines[0], "resumed after step 57 of run ") || !strings.HasSuffix(p.lines[0], checkpoint.Path(dir, 57)) {
			t.Errorf("lines %q", p.lines)
		}
	})
}

// A job that does not resume is refused at all peers if one of them has the folder of another run.
// A job whose peers have all died goes on from its own checkpoints.
func TestStateOfAnotherRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	synctest.Test(t, func(t *testing.T) { start(t, 3, 20, in(dir, "")).finish(t, 20, 0, 1, 2) })
	synctest.Test(t, func(t *testing.T) {
		p := start(t, 2, 20, func(index int) checkpoint.Config {
			if index == 0 {
				return checkpoint.Config{}
			}
			return in(dir, "")(index)
		})
		p.Wait()
		if !errors.Is(p.ended[1], checkpoint.ErrForeign) || !errors.Is(p.ended[1], collective.ErrMistake) ||
			p.ended[0] == nil || !strings.Contains(p.ended[0].Error(), "write to another folder") || p.steps[0]+p.steps[1] > 0 {
			t.Errorf("%v, %v", p.ended, p.steps)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the same first view, so the same job
		p := start(t, 3, 30, in(dir, ""))
		p.finish(t, 30, 0, 1, 2)
		if p.begun[0] != 20 {
			t.Errorf("begun after step %d", p.begun[0])
		}
	})
}

// Peers that are too few save what they have. Of the others the one of rank 0 saves the last step.
func TestStateWithoutQuorum(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	folder := func(index int) string { return filepath.Join(dir, fmt.Sprint(index)) }
	synctest.Test(t, func(t *testing.T) {
		p := start(t, 5, 60, func(index int) checkpoint.Config {
			return checkpoint.Config{Dir: folder(index), EverySteps: 500}
		})
		<-time.After(300 * time.Millisecond)
		p.Network.Partition([]elastic.ID{"member-0", "member-1"}, []elastic.ID{"member-2", "member-3", "member-4"})
		<-time.After(5 * time.Minute)
		wantFiles(t, folder(2), 60)
		wantFiles(t, folder(3))
		wantFiles(t, folder(4))
		for i := range 2 {
			c, problems, err := checkpoint.Latest(folder(i), nil)
			if err != nil || len(problems) > 0 || c.Step < 2 || c.Step >= 60 {
				t.Fatalf("peer %d has saved %+v (%v, %v)", i, c, problems, err)
			}
			s := newSums()
			if err := errors.Join(c.Load([]checkpoint.Tensor{{Name: "f64", Shape: []int{3}, Values: &s.f64}, {Name: "f32", Shape: []int{1}, Data: s.f32},
				{Name: "whole", Shape: []int{1, 2}, Values: &s.whole}, {Name: "small", Shape: []int{1}, Values: s.small}, {Name: "half", Shape: []int{1}, Values: s.half}}), c.Close()); err != nil ||
				s.whole[1] != int(-samples*c.Step) {
				t.Errorf("peer %d has saved %+v after step %d (%v)", i, s, c.Step, err)
			}
		}
		p.Kill(0)
		p.Kill(1)
		p.finish(t, 60, 2, 3, 4)
	})
}

// A state with other tensors than the checkpoint's, and wrong settings, are refused with the cause.
func TestStateRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	synctest.Test(t, func(t *testing.T) { start(t, 1, 7, in(dir, "")).finish(t, 7, 0) })
	if _, err := os.Stat(checkpoint.Path(dir, 7)); err != nil {
		t.Fatal(err)
	}
	step := int64(0)
	whole := func() []checkpoint.Tensor { return newSums().tensors() }
	other := whole()
	other[0].Values = make([]int64, 3)
	longer := whole()
	longer[1].Data = make([]float32, 2)
	for want, c := range map[string]struct {
		cfg     checkpoint.Config
		step    *int64
		tensors []checkpoint.Tensor
	}{
		`no tensor "x"`: {checkpoint.Config{Resume: dir}, &step, append(whole(), checkpoint.Tensor{Name: "x", Data: []float32{1}})},
		`a tensor "half", which the program does not request`: {checkpoint.Config{Resume: dir}, &step, whole()[:4]},
		"elements of type F64, want I64":                      {checkpoint.Config{Resume: dir}, &step, other},
		"want 2 elements in the shape [2]":                    {checkpoint.Config{Resume: dir}, &step, longer},
		"EverySteps -1":                                       {checkpoint.Config{EverySteps: -1}, &step, whole()},
		"the address of the step":                             {checkpoint.Config{}, nil, whole()},
		`tensor "s" is a []string`:                            {checkpoint.Config{}, &step, []checkpoint.Tensor{{Name: "s", Values: []string{"a"}}}},
		"each name once":                                      {checkpoint.Config{}, &step, append(whole(), whole()...)},
	} {
		_, err := checkpoint.NewState(new(elastic.Group), c.cfg, c.step, c.tensors...)
		if err == nil || !strings.Contains(err.Error(), want) || step != 0 {
			t.Errorf("step %d, error %v, want %q", step, err, want)
		}
	}
}

// Each type of elements is written and read without a change.
func TestTensorsOfAllTypes(t *testing.T) {
	read := []any{make([]int, 2), make([]int8, 2), make([]int32, 2), make([]int64, 2), make([]uint8, 2), make([]uint32, 2), make([]uint64, 2),
		make([]float32, 2), make([]float64, 2), make([]dtype.Float16, 2), make([]dtype.BFloat16, 2)}
	written := []any{[]int{1, -2}, []int8{1, -2}, []int32{1, -2}, []int64{1, -2}, []uint8{1, 2}, []uint32{1, 2}, []uint64{1, 2},
		[]float32{1, -2}, []float64{1, -2}, []dtype.Float16{1, 2}, []dtype.BFloat16{1, 2}}
	tensors := func(values []any) (all []checkpoint.Tensor) {
		for _, v := range values {
			all = append(all, checkpoint.Tensor{Name: fmt.Sprintf("%T", v), Shape: []int{2}, Values: v})
		}
		return all
	}
	path, err := checkpoint.Write(t.TempDir(), checkpoint.Header{Step: 1}, tensors(written))
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Load(tensors(read)), c.Close()); err != nil || !reflect.DeepEqual(read, written) {
		t.Errorf("read %v (%v), want %v", read, err, written)
	}
}
