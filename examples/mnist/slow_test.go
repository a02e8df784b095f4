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
		if got := s.factor(c.index, 3, c.step); got != c.want {
			t.Errorf("peer %d in step %d takes %v times as long, want %v", c.index, c.step, got, c.want)
		}
	}
}

// In each step one peer is slow, and each peer is slow about equally often.
func TestARandomPeerIsSlow(t *testing.T) {
	var s slowdowns
	if err := s.UnmarshalText([]byte("random:5@2")); err != nil {
		t.Fatal(err)
	}
	const peers, steps = 4, 4000
	times := make([]int, peers)
	for step := int64(1); step <= steps; step++ {
		slow := 0
		for i := range peers {
			if s.factor(i, peers, step) == 5 {
				times[i]++
				slow++
			}
		}
		if want := min(1, int(step-1)); slow != want {
			t.Fatalf("step %d: %d peers are slow, want %d", step, slow, want)
		}
	}
	for i, n := range times {
		if n < steps/peers*8/10 || n > steps/peers*12/10 {
			t.Errorf("peer %d is slow in %d of %d steps", i, n, steps)
		}
	}
}

func TestSlowdownErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": "no colon", "3": "no colon", "any:2": `peer "any"`, "0:2,": "no colon", "x:2": `peer "x"`, "-1:2": `peer "-1"`, "0:": `factor ""`,
		"0:0.5": `factor "0.5"`, "0:nan": `factor "nan"`, "0:inf": `factor "inf"`, "0:2@": `step ""`, "0:2@0": `step "0"`,
		"0:2@5-": `step ""`, "0:2@5-4": "at least 5", "0:2@5-6-7": `step "6-7"`,
	} {
		s := slowdowns{{factor: 9}}
		err := s.UnmarshalText([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || len(s) != 1 || s[0].factor != 9 {
			t.Errorf("%q: %v, error %v; want %s and no change", text, s, err, want)
		}
	}
}

func FuzzSlowdown(f *testing.F) {
	for _, text := range []string{"0:4", "2:1.5@100-200", "random:5@3", "1:2@7", "0:1e300@1-1", "", ":@-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSlowdown(text)
		if err != nil {
			return
		}
		if s.index < randomPeer || !(s.factor >= 1) || s.first < 1 || s.last < s.first {
			t.Fatalf("%q gives %+v", text, s)
		}
		if again, err := parseSlowdown(s.String()); err != nil || again != s {
			t.Fatalf("%q gives %+v, and its text %q gives %+v (%v)", text, s, s, again, err)
		}
	})
}

// fixed is a model that takes a fixed virtual time.
func fixed(takes time.Duration, err error) trainer.Model {
	return trainer.Model{Params: make([]trainer.Param, 3), Gradient: func(b *trainer.Batch) (float64, error) {
		<-time.After(takes)
		for i := range 3 {
			b.Done(2-i, 0)
		}
		return float64(len(b.Samples())), err
	}}
}

// slowly returns the result of a model for 10 samples. No gradient may be reported as complete
// before the end.
func slowly(t *testing.T, m trainer.Model) (loss float64, took time.Duration, err error) {
	t.Helper()
	begun := time.Now()
	loss, err = m.Accumulate(make([][]float32, 3), make([]int, 10), func(int, int) { t.Error("a gradient is complete before the time is over") })
	return loss, time.Since(begun), err
}

// pacedTime returns the time that a model takes for 10 samples.
func pacedTime(t *testing.T, m trainer.Model) time.Duration {
	t.Helper()
	loss, took, err := slowly(t, m)
	if err != nil || loss != 10 {
		t.Errorf("loss %v, error %v", loss, err)
	}
	return took
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
			p := newPacer(t.Context(), o)
			m := p.slowed(fixed(c.takes, nil))
			p.begin(c.step)
			for range 2 {
				if got := pacedTime(t, m); got != c.want {
					t.Errorf("step %d of a model that takes %v: %v, want %v", c.step, c.takes, got, c.want)
				}
			}
		}
	})
}

// Excess waiting time is compensated within a step, and forgotten between steps.
func TestPacedMakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(t.Context(), options{Pace: time.Millisecond})
		m := p.slowed(fixed(time.Millisecond, nil))
		p.begin(1)
		begun := time.Now()
		for range 5 {
			pacedTime(t, m)
			<-time.After(3 * time.Millisecond) // as if the timer had fired late
		}
		if got := time.Since(begun); got != 53*time.Millisecond {
			t.Errorf("five microbatches of 10 ms took %v, each of which ended 3 ms late", got)
		}
		p.begin(2)
		if got := pacedTime(t, m); got != 10*time.Millisecond {
			t.Errorf("the first of the next step took %v", got)
		}
	})
}

func TestPacedEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, took, err := slowly(t, newPacer(ctx, options{Pace: time.Hour}).slowed(fixed(0, nil)))
		if !errors.Is(err, why) || took != time.Second {
			t.Errorf("error %v after %v", err, took)
		}
		boom := errors.New("boom")
		_, took, err = slowly(t, newPacer(t.Context(), options{Pace: time.Hour}).slowed(fixed(0, boom)))
		if !errors.Is(err, boom) || took != 0 {
			t.Errorf("error %v after %v, want that of the model at once", err, took)
		}
	})
}

// A slowed model keeps all properties that do not depend on time.
func TestPacedKeepsTheRest(t *testing.T) {
	var read []int
	m := fixed(0, nil)
	m.Grouped = true
	m.Prefetch = func(_ context.Context, samples []int) { read = samples }
	slow := newPacer(t.Context(), options{}).slowed(m)
	if slow.Prefetch(t.Context(), []int{3, 1}); !slices.Equal(read, []int{3, 1}) {
		t.Errorf("samples %v", read)
	}
	if !slow.Grouped || len(slow.Params) != 3 {
		t.Errorf("left of the model: %+v", slow)
	}
}
