package elastic

import (
	"testing"
	"testing/synctest"
)

// A function runs in the goroutine of the loop and its result comes back; after the end of the loop
// there is no result, and nobody waits.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEventLoop()
		go func() { (<-l.functions)() }()
		if got, ok := ask(&l, func() int { return 7 }); got != 7 || !ok {
			t.Errorf("got %d, %v", got, ok)
		}
		l.cancel()
		if got, ok := ask(&l, func() int { return 7 }); got != 0 || ok {
			t.Errorf("after the end: got %d, %v", got, ok)
		}
	})
}
