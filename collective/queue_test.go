package collective

import (
	"context"
	"testing"
)

// A queue finds exactly the calls that are in it, however often its memory was reused.
func TestQueueFinds(t *testing.T) {
	var q queue
	begun, ended := uint32(0), uint32(0)
	for round := range 100 {
		for range round%7 + 1 {
			begun++
			q.push().seq = begun
		}
		for range round % 5 {
			if q.first < len(q.calls)-1 {
				q.first++
				ended++
			}
		}
		for seq := range begun + 2 {
			if _, ok := q.find(seq); ok != (seq > ended && seq <= begun) {
				t.Fatalf("round %d: call %d of %d to %d: %v", round, seq, ended+1, begun, ok)
			}
		}
	}
	if len(q.calls) > 2*int(begun-ended)+16 {
		t.Errorf("%d places for %d calls", len(q.calls), begun-ended)
	}
}

// Consecutive calls with one context share a guard until the last of them has ended.
func TestGuardIsShared(t *testing.T) {
	var q queue
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, fresh := q.guardFor(ctx)
	if fresh != first {
		t.Fatal("the first guard has not to listen")
	}
	type key struct{}
	second, fresh := q.guardFor(context.WithValue(ctx, key{}, 0)) // another context, which ends with ctx
	if second != first || fresh != nil {
		t.Error("two calls of one context have two guards")
	}
	if other, fresh := q.guardFor(t.Context()); other == first || fresh != other {
		t.Error("a call has the guard of another context")
	}
	stopped := 0
	first.stop = func() bool { stopped++; return true }
	for range 2 {
		if stop := first.unref(); stop != nil {
			stop()
		}
	}
	q.guard = first
	if again, _ := q.guardFor(ctx); stopped != 1 || again == first {
		t.Errorf("stopped %d times, and the guard is used again: %v", stopped, again == first)
	}
}
