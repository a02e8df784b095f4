package progress

import "testing"

// After as many misses as there was luck, or once if the core is wanted, nobody looks any
// more, but now and then.
func TestEagernessEnds(t *testing.T) {
	e := eagerness{luck: mostLuck}
	for misses := 0; e.luck > 0; misses++ {
		if misses == mostLuck || !e.worth() {
			t.Fatalf("luck of %d after %d misses", e.luck, misses)
		}
		e.missed()
	}
	again := func() (waits int) {
		for waits = 1; !e.worth(); waits++ {
		}
		return waits
	}
	for range 3 {
		if waits := again(); waits != tryAgain {
			t.Errorf("it tries again after %d waits, want %d", waits, tryAgain)
		}
		e.missed()
	}
	for range mostLuck {
		e.came()
	}
	if e.crowded(); e.worth() || e.luck != 0 {
		t.Errorf("luck of %d where others want the core", e.luck)
	}
}

// Where every second time something comes in time it always looks, and what it remembers is
// bounded.
func TestEagernessStays(t *testing.T) {
	var e eagerness
	for !e.worth() {
	}
	e.came()
	for i := range 1000 {
		if !e.worth() || e.luck > mostLuck {
			t.Fatalf("after %d times its luck is %d", i, e.luck)
		}
		if i%2 == 0 {
			e.missed()
		} else {
			e.came()
		}
	}
}
