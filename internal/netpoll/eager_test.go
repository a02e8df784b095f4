package netpoll

import (
	"testing"
	"time"
)

// short is how long a turn of a test takes.
const short = time.Microsecond

// waits returns how many waits it takes until it looks.
func waits(e *eagerness) (n int) {
	for n = 1; ; n++ {
		if e.begin(); e.again(short) {
			return n
		}
	}
}

// miss looks for something until that is over, and returns how often it did.
func miss(e *eagerness) (looks int) {
	for looks = 1; ; looks++ {
		if e.offered(short, 0); !e.again(short) {
			return looks
		}
	}
}

// come looks for something that comes at once.
func come(e *eagerness) {
	e.offered(short, 0)
	e.came()
}

// After as many misses as there was luck nobody looks any more, but now and then, and ever
// less often.
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

// Where every second time something comes in time it always looks, and what it remembers is
// bounded.
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

// Where others want the processor it looks once after their turn, and then waits. What has come
// meanwhile says nothing about luck, but that other processes want it does.
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

// What has come before it has looked is no luck.
func TestEagernessNotLooking(t *testing.T) {
	e := &eagerness{pause: tryAgain}
	e.begin()
	if e.came(); e.luck != 0 {
		t.Errorf("luck of %d", e.luck)
	}
}
