package netpoll

import (
	"testing"
	"time"
)

// short is the duration of a poll in these tests.
const short = time.Microsecond

// waits begins to wait again and again until a wait is by busy-polling, and returns the number of waits.
func waits(e *eagerness) (n int) {
	for n = 1; ; n++ {
		if e.begin(); e.again(short) {
			return n
		}
	}
}

// miss polls until busy-polling ends without a message, and returns the number of polls.
func miss(e *eagerness) (looks int) {
	for looks = 1; ; looks++ {
		if e.offered(short, 0); !e.again(short) {
			return looks
		}
	}
}

// come polls for a message that arrives at once.
func come(e *eagerness) {
	e.offered(short, 0)
	e.came()
}

// Polls without a message use up the credit. After that, busy-polling is tried again at growing intervals.
func TestEagernessEnds(t *testing.T) {
	e := newEagerness()
	for range mostLuck {
		if n := waits(e); n != 1 {
			t.Fatalf("with luck of %d it looks after %d waits", e.luck, n)
		}
		if looks := miss(e); looks != int(lookTime/short)/2+1 {
			t.Errorf("it looks %d times, %v and %v each", looks, short, short)
		}
	}
	for want := tryAgain; want <= 4*mostTries; want *= 2 {
		if n := waits(e); n != min(want, mostTries) {
			t.Errorf("it tries again after %d waits, want %d", n, min(want, mostTries))
		}
		miss(e)
	}
	waits(e)
	come(e)
	if e.luck != comeLuck || e.pause != tryAgain {
		t.Errorf("after something has come it has luck of %d and %d waits", e.luck, e.pause)
	}
}

// If every second message arrives in time, busy-polling continues. The credit stays bounded.
func TestEagernessStays(t *testing.T) {
	e := &eagerness{pause: tryAgain}
	waits(e)
	come(e)
	for i := range 1000 {
		if n := waits(e); n != 1 || e.luck > mostLuck {
			t.Fatalf("after %d times its luck is %d, and it looks after %d waits", i, e.luck, n)
		}
		if i%2 == 0 {
			miss(e)
		} else {
			come(e)
		}
	}
}

// If other processes or goroutines compute, busy-polling ends after one more poll. A message that arrives meanwhile adds no
// credit. If other processes compute, the whole credit is lost.
func TestEagernessGivesWay(t *testing.T) {
	for name, c := range map[string]struct {
		processes, goroutines time.Duration
		luck                  int
	}{
		"processes":  {2 * turnTime, short, 0},
		"goroutines": {short, 2 * lookTime, mostLuck - 1},
	} {
		for _, comes := range []bool{false, true} {
			e := newEagerness()
			e.luck--
			waits(e)
			e.offered(c.processes, c.goroutines)
			if comes {
				e.came()
			} else if e.again(short) {
				t.Errorf("%s: it looks for a second time", name)
			}
			if e.luck != c.luck {
				t.Errorf("%s: luck of %d, want %d", name, e.luck, c.luck)
			}
		}
	}
}

// A message that arrives before busy-polling begins adds no credit.
func TestEagernessNotLooking(t *testing.T) {
	e := &eagerness{pause: tryAgain}
	e.begin()
	if e.came(); e.luck != 0 {
		t.Errorf("luck of %d", e.luck)
	}
}
