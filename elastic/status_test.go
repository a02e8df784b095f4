package elastic

import (
	"testing"
	"testing/synctest"
)

// A change closes the channel of an earlier status, a context ends when its condition is false, and
// the status of a closed driver does not change.
func TestWatchedStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchedStatus{changed: make(chan struct{})}
		ctx, stop := w.while(t.Context(), func(s status) bool { return s.phase == outside })
		defer stop()
		_, changed := w.now()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("the context has ended before its condition")
		}
		w.set(func(s *status) { s.phase = inside })
		<-changed
		<-ctx.Done()
		w.set(func(s *status) { s.phase = closed })
		w.endJob()
		if s, _ := w.now(); s.phase != closed || s.ended {
			t.Errorf("a closed driver's status changes to %+v", s)
		}
	})
}
