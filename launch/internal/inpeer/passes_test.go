package inpeer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// wait returns only the latest pass, and only if it is for the identity that waits.
func TestPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPasses()
		c.put(wire.Pass{ID: "old", Signature: []byte{1}})
		c.put(wire.Pass{ID: "new", Signature: []byte{2}})
		if got := c.wait(t.Context(), "new", nil); len(got) != 1 || got[0] != 2 {
			t.Errorf("got %v, want the latest signature", got)
		}
		c.put(wire.Pass{ID: "old", Signature: []byte{1}})
		begun := time.Now()
		if got := c.wait(t.Context(), "new", nil); got != nil || time.Since(begun) != passPeriod {
			t.Errorf("got %v after %v, want none after %v", got, time.Since(begun), passPeriod)
		}
		gone := make(chan struct{})
		close(gone)
		if got := c.wait(t.Context(), "new", gone); got != nil {
			t.Errorf("got %v without a launcher", got)
		}
	})
}
