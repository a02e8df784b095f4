package elastic

import (
	"testing"
	"time"
)

// Ticks count as late only if they are late by more than lateTick, also if several ticks are
// handled at once. Late ticks increase the health factor of this process.
func TestTickClock(t *testing.T) {
	now := time.Unix(0, 0)
	c := tickClock{ticked: now}
	for _, s := range []struct {
		span int
		late time.Duration
		want time.Duration
	}{{1, 0, 0}, {5, lateTick, 0}, {5, lateTick + 1, lateTick + 1}} {
		now = now.Add(time.Duration(s.span)*tickPeriod + s.late)
		if got := c.advance(now, s.span); got != s.want {
			t.Errorf("%d ticks that come after %v more: %v, want %v", s.span, s.late, got, s.want)
		}
	}
	if c.ticks != 11 || c.health.factor(now) != 2 {
		t.Errorf("%d ticks, factor %d", c.ticks, c.health.factor(now))
	}
}
