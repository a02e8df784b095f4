package inpeer

import (
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
)

// A peer steps down for a program that a whole second of looks found stopped, and again if that had no effect.
func TestProgramWatchStopped(t *testing.T) {
	var v programWatch
	for i, stopped := range []bool{true, true, true, false, true, true, true, true, true, true, true, true} {
		if got, want := v.look(stopped), i == 7 || i == 11; got != want {
			t.Errorf("look %d: step down %v, want %v", i, got, want)
		}
	}
}

// A program counts as computing once the sidecar has waited for it for a while and the program was seen to use a processor or to move
// data, and for some seconds after that.
func TestProgramWatchComputes(t *testing.T) {
	begin := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		effort       func(s float64) proc.Effort // after a number of seconds
		waits        float64                     // from when on the sidecar waits, in seconds
		first, until float64                     // when the program is first and last said to compute; 0 for never
	}{
		"processor":  {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(s * 1e8)} }, 0, 6, 60},
		"data":       {func(s float64) proc.Effort { return proc.Effort{Bytes: int64(s * 1e5)} }, 0, 6, 60},
		"later":      {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(s * 1e9)} }, 10, 16, 60},
		"idle":       {func(float64) proc.Effort { return proc.Effort{CPU: time.Hour, Bytes: 1 << 40} }, 0, 0, 0},
		"a little":   {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(s * 1e7), Bytes: int64(s * 1000)} }, 0, 0, 0},
		"ends":       {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(min(s, 20) * 1e9)} }, 0, 6, 24.75},
		"falls":      {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(-s * 1e9)} }, 0, 0, 0},
		"never asks": {func(s float64) proc.Effort { return proc.Effort{CPU: time.Duration(s * 1e9)} }, 100, 0, 0},
	} {
		var v programWatch
		var first, last float64
		measured := 0
		for s := 0.0; s <= 60; s += lookPeriod.Seconds() {
			since := time.Time{}
			if s >= c.waits {
				since = begin.Add(time.Duration(c.waits * 1e9))
			}
			if v.computes(begin.Add(time.Duration(s*1e9)), since, func() proc.Effort { measured++; return c.effort(s) }) {
				if last = s; first == 0 {
					first = s
				}
			}
		}
		if first != c.first || last != c.until || measured > 60 {
			t.Errorf("%s: from %v to %v, want %v to %v; measured %d times", name, first, last, c.first, c.until, measured)
		}
	}
}

// A short wait, and one that follows it, cost nothing.
func TestProgramWatchShortWaits(t *testing.T) {
	var v programWatch
	begin := time.Unix(1000, 0)
	for i := range 100 {
		now := begin.Add(time.Duration(i) * lookPeriod)
		if v.computes(now, now.Add(-time.Second), func() proc.Effort { t.Fatal("measured"); return proc.Effort{} }) {
			t.Error("computes")
		}
	}
}
