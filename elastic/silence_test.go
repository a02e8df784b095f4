package elastic

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The limit is leastSilence for a member that sends messages often. For a member with long pauses
// the limit is a multiple of the longest pause, up to mostSilence.
func TestSilence(t *testing.T) {
	for _, c := range []struct{ every, limit time.Duration }{
		{50 * time.Millisecond, leastSilence},
		{250 * time.Millisecond, leastSilence},
		{700 * time.Millisecond, 2800 * time.Millisecond},
		{20 * time.Second, mostSilence},
	} {
		now := time.Unix(0, 0)
		s := newSilence(now)
		for range 50 {
			now = now.Add(c.every)
			s.received(now)
		}
		if got := s.limit(); got != c.limit {
			t.Errorf("a word every %v: limit %v, want %v", c.every, got, c.limit)
		}
	}
}

// The effect of a long pause on the limit decays, and a period in which this process did not run
// does not count as silence.
func TestSilenceForgetsAndExcuses(t *testing.T) {
	now := time.Unix(0, 0)
	s := newSilence(now)
	now = now.Add(4 * time.Second)
	s.received(now)
	if got := s.limit(); got != 16*time.Second {
		t.Errorf("limit %v", got)
	}
	last := s.limit()
	for range 200 {
		now = now.Add(time.Second)
		s.received(now)
		if l := s.limit(); l > last {
			t.Fatalf("limit grows from %v to %v", last, l)
		} else {
			last = l
		}
	}
	if last > 4*time.Second+time.Millisecond {
		t.Errorf("after 200 s the limit is %v", last)
	}
	s.excuse(9 * time.Second)
	if got := now.Sub(s.last); got != -9*time.Second {
		t.Errorf("after an excuse of 9 s the silence lasts %v", got)
	}
}

// The limit is always within its bounds, for any times.
func TestSilenceBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		s := newSilence(now)
		for range rapid.IntRange(0, 20).Draw(t, "words") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause")))
			s.received(now)
		}
		if l := s.limit(); l < leastSilence || l > mostSilence {
			t.Fatalf("limit %v", l)
		}
	})
}
