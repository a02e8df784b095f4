package p2p

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p/core/peer"
)

// attempts is the state of a puncher for one peer.
type attempts struct {
	busy, failed bool // an attempt is under way; an attempt has failed
	waits        bool // whether awaitAttempt waits for the attempt
}

// A long-lived stream waits for the end of the first attempt at hole punching, and for no later
// attempt. The end of the context or of the host ends the waiting.
func TestAwaitAttempt(t *testing.T) {
	for name, a := range map[string]attempts{
		"none":   {},
		"first":  {busy: true, waits: true},
		"failed": {failed: true},
		"second": {busy: true, failed: true},
	} {
		for _, end := range []string{"attempt", "context", "host"} {
			t.Run(name+" until the end of the "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkAwaitAttempt(t, a, end) })
			})
		}
	}
}

func checkAwaitAttempt(t *testing.T, a attempts, end string) {
	const id = peer.ID("other")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &puncher{conns: &conns{tasks: newTasks()}, busy: make(map[peer.ID]chan struct{}), tried: make(map[peer.ID]trial)}
	attempt := make(chan struct{})
	if a.busy {
		p.busy[id] = attempt
	}
	if a.failed {
		p.tried[id] = trial{why: errors.New("no answer")}
	}
	returned := make(chan struct{})
	go func() {
		p.awaitAttempt(ctx, id)
		close(returned)
	}()
	synctest.Wait()
	if got := !isClosed(returned); got != a.waits {
		t.Errorf("waits: %v, want %v", got, a.waits)
	}
	switch end {
	case "attempt":
		close(attempt)
	case "context":
		cancel()
	case "host":
		p.tasks.stop()
	}
	synctest.Wait()
	if !isClosed(returned) {
		t.Error("it waits on")
	}
}

// isClosed reports whether c is closed. Nothing is ever sent on c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
