package progress

import "testing"

// After three misses nobody looks any more, but now and then; if something comes then, often
// enough, one looks again.
func TestEagerness(t *testing.T) {
	e := eagerness{luck: mostLuck}
	for misses := 0; e.worth(); misses++ {
		if misses == 3 {
			t.Fatal("it looks after three misses")
		}
		e.missed()
	}
	again := func() (waits int) {
		for waits = 1; !e.worth(); waits++ {
		}
		return waits
	}
	again() // from the one above on
	for range 3 {
		e.missed()
		if waits := again(); waits != tryAgain {
			t.Errorf("it tries again after %d waits, want %d", waits, tryAgain)
		}
	}
	for range 10 {
		e.came()
	}
	if e.missed(); !e.worth() {
		t.Error("one miss is too much after much luck")
	}
	if e.luck > mostLuck {
		t.Errorf("luck of %d", e.luck)
	}
}

// Where three of four times something comes in time it looks nearly always.
func TestEagernessStays(t *testing.T) {
	e := eagerness{luck: mostLuck}
	looked := 0
	for i := range 1000 {
		if !e.worth() {
			continue
		}
		looked++
		if i%5 == 0 {
			e.missed()
		} else {
			e.came()
		}
	}
	if looked < 900 {
		t.Errorf("it looked %d times of 1000", looked)
	}
}
