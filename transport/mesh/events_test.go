package mesh

import (
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/elastic"
)

// If a peer sends messages faster than they are read, the messages take a bounded part of the
// memory, and the queue has room for other peers.
func TestOnePeerFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEventQueue(func(elastic.ID) {})
		defer l.stop() // so that all calls that wait return
		for range 4 {  // as many streams as a peer may have
			go func() {
				for range 100 {
					l.message("flood", make([]byte, 100<<10))
				}
			}()
		}
		synctest.Wait()
		l.mu.Lock()
		waiting := l.queuedBytes["flood"]
		l.mu.Unlock()
		if waiting > maxQueuedBytes+4*queueCost(make([]byte, 100<<10)) {
			t.Errorf("%d bytes wait", waiting)
		}
		other := make(chan struct{})
		go func() {
			l.message("other", []byte("x"))
			close(other)
		}()
		synctest.Wait()
		select {
		case <-other:
		default:
			t.Error("another peer waits for the one that floods")
		}
	})
}
