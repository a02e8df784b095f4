package nodes

import (
	"testing"
	"time"
)

func TestRestarts(t *testing.T) {
	r := NewRestarts(12)
	for i, c := range []struct {
		index int
		life  time.Duration
		pause time.Duration
	}{
		{0, time.Hour, 0}, {0, time.Second, 0}, {0, time.Second, time.Second}, {0, 0, 2 * time.Second},
		{1, time.Second, 0},                                // deaths are counted for each peer
		{0, quickDeath - 1, 4 * time.Second},               // still quick
		{0, quickDeath, 0}, {0, 0, 0}, {0, 0, time.Second}, // the pauses begin again
		{1, 0, time.Second}, {1, 0, 2 * time.Second}, {1, 0, 4 * time.Second},
	} {
		if pause, again := r.Decide(c.index, c.life); !again || pause != c.pause {
			t.Errorf("death %d: again %v after %v, want %v", i, again, pause, c.pause)
		}
	}
	if _, again := r.Decide(0, time.Hour); again {
		t.Error("started again more often than allowed")
	}
}

func TestRestartPauseIsBounded(t *testing.T) {
	r := NewRestarts(1000)
	last := time.Duration(0)
	for range 1000 {
		pause, _ := r.Decide(0, 0)
		if pause < last || pause > longPause {
			t.Fatalf("pause %v after %v", pause, last)
		}
		last = pause
	}
	if last != longPause {
		t.Errorf("last pause %v, want %v", last, longPause)
	}
}
