package p2p

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// A circuit waits for the end of a handshake with the peer itself, successful or not, and for no
// handshake with another peer. After two failures it does not wait.
func TestCircuitsWaitForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		waits := func(id peer.ID) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := h.awaitFewFailed(ctx, id)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			return err != nil
		}
		if waits("a") {
			t.Error("waits without a handshake")
		}
		first, second := h.begin("a"), h.begin("a")
		if !waits("a") || waits("b") {
			t.Error("does not wait for the peer's handshakes, or waits for those of another")
		}
		first(errors.New("reset"))
		if !waits("a") {
			t.Error("does not wait for the second handshake")
		}
		done := make(chan error, 1)
		go func() { done <- h.awaitFewFailed(t.Context(), "a") }()
		synctest.Wait()
		second(context.Canceled)
		if err := <-done; err != nil {
			t.Errorf("after the end: %v", err)
		}
		h.begin("a")(errors.New("reset")) // the second failure; the cancelled handshake does not count
		third := h.begin("a")
		if waits("a") {
			t.Error("waits after two failures")
		}
		third(nil)
		if len(h.running) > 0 || len(h.failed) > 0 {
			t.Errorf("left behind: %v, %v", h.running, h.failed)
		}
		defer h.begin("a")(nil)
		if !waits("a") {
			t.Error("does not wait after a success")
		}
	})
}

// The limit of a dial waits for the end of a handshake, however many have failed before.
func TestDialsWaitForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		for range maxHandshakesFailed {
			h.begin("a")(errors.New("reset"))
		}
		end := h.begin("a")
		done := make(chan error, 1)
		go func() { done <- h.await(t.Context(), "a") }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("does not wait for a handshake after others have failed")
		}
		end(nil)
		if err := <-done; err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}
