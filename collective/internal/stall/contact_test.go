package stall

import (
	"testing"
	"time"
)

// pending is the time of the oldest ask without an answer, whichever asks and answers are lost.
func TestPending(t *testing.T) {
	ms := time.Millisecond
	for name, test := range map[string]struct {
		asks, answers []time.Duration
		want          time.Duration
	}{
		"nothing":                          {nil, nil, 0},
		"no answer":                        {[]time.Duration{200 * ms, 400 * ms}, nil, 200 * ms},
		"all answers":                      {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms, 400 * ms}, 0},
		"the last":                         {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{400 * ms}, 0},
		"the first":                        {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms}, 400 * ms},
		"an answer twice":                  {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms, 200 * ms}, 400 * ms},
		"one from before the last answers": {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{400 * ms, 200 * ms}, 0},
	} {
		var c contact
		for _, at := range test.asks {
			c.ask(at)
		}
		for _, at := range test.answers {
			c.tell(at, time.Minute)
		}
		if c.pending != test.want {
			t.Errorf("%s: pending since %v, want %v", name, c.pending, test.want)
		}
	}
}

// A rank is silent after three asks and SilentAfter. After two asks without an answer, another
// rank's report that the rank is silent is confirmed.
func TestSilent(t *testing.T) {
	var c contact
	for i, at := range []time.Duration{200, 400, 410, 600} {
		at *= time.Millisecond
		c.ask(at)
		if c.silent(at) {
			t.Errorf("silent at ask %d", i)
		}
		if got := c.confirms(at); got != (i > 0) {
			t.Errorf("confirmed at ask %d: %v", i, got)
		}
	}
	if c.silent(699*time.Millisecond) || !c.silent(700*time.Millisecond) {
		t.Error("silent at another time than half a second after the first ask")
	}
	if c.tell(600*time.Millisecond, 800*time.Millisecond); c.silent(time.Minute) || c.responseTime(time.Minute) != 200*time.Millisecond {
		t.Errorf("after the answer: %+v", c)
	}
}
