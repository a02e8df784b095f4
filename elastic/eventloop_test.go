package elastic

import (
	"testing"
	"testing/synctest"
)

// ask returns the result of a function that the goroutine of the loop has run. After the end of the
// loop, ask returns at once without a result.
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
