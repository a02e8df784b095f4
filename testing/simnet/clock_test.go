package simnet

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Calls happen at their times. Calls with the same time happen in the order in which they were scheduled.
func TestClockOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(-3, 20), 0, 50).Draw(rt, "delays in seconds")
		var got, want []int
		var late []int
		synctest.Test(t, func(*testing.T) {
			c := newClock()
			start := time.Now()
			for i, d := range delays {
				at := start.Add(time.Duration(max(d, 0)) * time.Second)
				want = append(want, i)
				c.at(at, func() {
					got = append(got, i)
					if !time.Now().Equal(at) {
						late = append(late, i)
					}
				})
			}
			<-time.After(time.Minute)
			c.stop()
		})
		slices.SortStableFunc(want, func(a, b int) int { return max(delays[a], 0) - max(delays[b], 0) })
		if !slices.Equal(got, want) || len(late) > 0 {
			rt.Fatalf("called %v, want %v; at another time %v", got, want, late)
		}
	})
}

// A call may schedule further calls. After stop there are no calls.
func TestClockStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		calls := 0
		var again func()
		again = func() {
			calls++
			c.at(time.Now().Add(time.Second), again)
		}
		again()
		<-time.After(10*time.Second + time.Millisecond)
		c.stop()
		c.stop()
		<-time.After(time.Minute)
		if calls != 11 {
			t.Errorf("%d calls", calls)
		}
	})
}
