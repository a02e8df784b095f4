package netpoll

import (
	"testing"
	"time"
)

// short is the duration of a poll in these tests.
const short = time.Microsecond

// skips begins messages until the busyPoller decides to busy-poll for a message, and returns the
// number of begun messages.
func skips(p *busyPoller) (n int) {
	for n = 1; ; n++ {
		if p.startMessage(); p.pollAgain(short) {
			return n
		}
	}
}

// missOne polls until busy-polling ends without a message, and returns the number of polls.
func missOne(p *busyPoller) (polls int) {
	for polls = 1; ; polls++ {
		if p.recordYield(short, 0); !p.pollAgain(short) {
			return polls
		}
	}
}

// hitOne polls for a message that arrives at once.
func hitOne(p *busyPoller) {
	p.recordYield(short, 0)
	p.recordHit()
}

// Polls without a message use up the credit. After that, busy-polling is tried again at growing intervals.
func TestBusyPollerStops(t *testing.T) {
	p := newBusyPoller()
	for range maxCredit {
		if n := skips(p); n != 1 {
			t.Fatalf("with a credit of %d it polls after %d waits", p.credit, n)
		}
		if polls := missOne(p); polls != int(maxPollTime/short)/2+1 {
			t.Errorf("it polls %d times, %v and %v each", polls, short, short)
		}
	}
	for want := minRetry; want <= 4*maxRetry; want *= 2 {
		if n := skips(p); n != min(want, maxRetry) {
			t.Errorf("it tries again after %d waits, want %d", n, min(want, maxRetry))
		}
		missOne(p)
	}
	skips(p)
	hitOne(p)
	if p.credit != hitCredit || p.retryInterval != minRetry {
		t.Errorf("after a message the credit is %d and the retry interval %d", p.credit, p.retryInterval)
	}
}

// If every second message arrives in time, busy-polling continues. The credit stays bounded.
func TestBusyPollerContinues(t *testing.T) {
	p := &busyPoller{retryInterval: minRetry}
	skips(p)
	hitOne(p)
	for i := range 1000 {
		if n := skips(p); n != 1 || p.credit > maxCredit {
			t.Fatalf("after %d times the credit is %d, and it polls after %d waits", i, p.credit, n)
		}
		if i%2 == 0 {
			missOne(p)
		} else {
			hitOne(p)
		}
	}
}

// If other processes or goroutines compute, busy-polling ends after one more poll. A message that
// arrives during this poll adds no credit. If other processes compute, the whole credit is lost.
func TestBusyPollerYields(t *testing.T) {
	for name, c := range map[string]struct {
		processes, goroutines time.Duration
		credit                int
	}{
		"processes":  {2 * maxYieldTime, short, 0},
		"goroutines": {short, 2 * maxPollTime, maxCredit - 1},
	} {
		for _, comes := range []bool{false, true} {
			p := newBusyPoller()
			p.credit--
			skips(p)
			p.recordYield(c.processes, c.goroutines)
			if comes {
				p.recordHit()
			} else if p.pollAgain(short) {
				t.Errorf("%s: it polls a second time", name)
			}
			if p.credit != c.credit {
				t.Errorf("%s: credit %d, want %d", name, p.credit, c.credit)
			}
		}
	}
}

// A message that arrives before busy-polling begins adds no credit.
func TestBusyPollerNotPolling(t *testing.T) {
	p := &busyPoller{retryInterval: minRetry}
	p.startMessage()
	if p.recordHit(); p.credit != 0 {
		t.Errorf("credit %d", p.credit)
	}
}
