package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/trainer"
)

func TestSlowdowns(t *testing.T) {
	var s slowdowns
	if err := s.UnmarshalText([]byte("0:4,2:1.5@100-200,2:2@150")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		index int
		step  int64
		want  float64
	}{
		{0, 1, 4}, {0, 1e9, 4}, {1, 150, 1}, {2, 99, 1}, {2, 100, 1.5}, {2, 149, 1.5}, {2, 150, 3}, {2, 200, 3}, {2, 201, 2},
	} {
		if got := s.factor(c.index, c.step); got != c.want {
			t.Errorf("peer %d in step %d takes %v times as long, want %v", c.index, c.step, got, c.want)
		}
	}
}

func TestSlowdownErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": "no colon", "3": "no colon", "0:2,": "no colon", "x:2": `peer "x"`, "-1:2": `peer "-1"`, "0:": `factor ""`,
		"0:0.5": `factor "0.5"`, "0:nan": `factor "nan"`, "0:inf": `factor "inf"`, "0:2@": `step ""`, "0:2@0": `step "0"`,
		"0:2@5-": `step ""`, "0:2@5-4": "from 5 on", "0:2@5-6-7": `step "6-7"`,
	} {
		s := slowdowns{{factor: 9}}
		err := s.UnmarshalText([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || len(s) != 1 || s[0].factor != 9 {
			t.Errorf("%q: %v, error %v; want %s and no change", text, s, err, want)
		}
	}
}

func FuzzSlowdown(f *testing.F) {
	for _, text := range []string{"0:4", "2:1.5@100-200", "1:2@7", "0:1e300@1-1", "", ":@-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSlowdown(text)
		if err != nil {
			return
		}
		if s.index < 0 || !(s.factor >= 1) || s.first < 1 || s.last < s.first {
			t.Fatalf("%q gives %+v", text, s)
		}
		if again, err := parseSlowdown(s.String()); err != nil || again != s {
			t.Fatalf("%q gives %+v, and its text %q gives %+v (%v)", text, s, s, again, err)
		}
	})
}

// fixed is a model that takes a fixed time, in a bubble where time is virtual.
type fixed struct {
	trainer.Model
	takes time.Duration
	err   error
}

func (m fixed) Accumulate(_ [][]float32, samples []int, done func(i int)) (float64, error) {
	<-time.After(m.takes)
	for i := range 3 {
		done(2 - i)
	}
	return float64(len(samples)), m.err
}

// pacedTime returns how long p takes for 10 samples.
func pacedTime(t *testing.T, p *paced) time.Duration {
	t.Helper()
	begun, order := time.Now(), []int(nil)
	loss, err := p.Accumulate(nil, make([]int, 10), func(i int) { order = append(order, i) })
	if err != nil || loss != 10 || !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("loss %v, parameters %v, error %v", loss, order, err)
	}
	return time.Since(begun)
}

func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("ELRUN_INDEX", "2")
		o := options{Pace: time.Millisecond, Slow: slowdowns{{index: 2, factor: 3, first: 5, last: 6}, {index: 1, factor: 50, first: 1, last: 9}}}
		for _, c := range []struct {
			step        int64
			takes, want time.Duration
		}{
			{4, 2 * time.Millisecond, 10 * time.Millisecond}, {4, 12 * time.Millisecond, 12 * time.Millisecond},
			{5, 2 * time.Millisecond, 30 * time.Millisecond}, {6, 12 * time.Millisecond, 36 * time.Millisecond},
			{7, 2 * time.Millisecond, 10 * time.Millisecond},
		} {
			p := newPaced(t.Context(), fixed{takes: c.takes}, o)
			p.begin(c.step)
			for range 2 {
				if got := pacedTime(t, p); got != c.want {
					t.Errorf("step %d of a model that takes %v: %v, want %v", c.step, c.takes, got, c.want)
				}
			}
		}
	})
}

// What a wait lasts too long is made up for within a step, and forgotten between steps.
func TestPacedMakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(t.Context(), fixed{takes: time.Millisecond}, options{Pace: time.Millisecond})
		p.begin(1)
		begun := time.Now()
		for range 5 {
			if _, err := p.Accumulate(nil, make([]int, 10), func(int) {}); err != nil {
				t.Fatal(err)
			}
			<-time.After(3 * time.Millisecond) // a timer that fires late
		}
		if got := time.Since(begun); got != 53*time.Millisecond {
			t.Errorf("five microbatches of 10 ms took %v, each of which ended 3 ms late", got)
		}
		p.begin(2)
		if got := pacedTime(t, p); got != 10*time.Millisecond {
			t.Errorf("the first of the next step took %v", got)
		}
	})
}

func TestPacedEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		p := newPaced(ctx, fixed{}, options{Pace: time.Hour})
		begun := time.Now()
		_, err := p.Accumulate(nil, make([]int, 10), func(int) { t.Error("gradients of an interrupted microbatch") })
		if !errors.Is(err, why) || time.Since(begun) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(begun))
		}
		boom := errors.New("boom")
		p = newPaced(t.Context(), fixed{err: boom}, options{Pace: time.Hour})
		if _, err := p.Accumulate(nil, make([]int, 10), func(int) {}); !errors.Is(err, boom) || time.Since(begun) != time.Second {
			t.Errorf("error %v after %v, want that of the model at once", err, time.Since(begun))
		}
	})
}

// prefetched is a model that takes down what it is to have read ahead.
type prefetched struct {
	trainer.Model
	samples []int
}

func (m *prefetched) Prefetch(_ context.Context, samples []int) { m.samples = samples }

// A model that is slowed down reads ahead if it can.
func TestPacedPrefetches(t *testing.T) {
	m := &prefetched{}
	newPaced(t.Context(), m, options{}).Prefetch(t.Context(), []int{3, 1})
	if !slices.Equal(m.samples, []int{3, 1}) {
		t.Errorf("samples %v", m.samples)
	}
	newPaced(t.Context(), fixed{}, options{}).Prefetch(t.Context(), []int{3, 1}) // it cannot
}
