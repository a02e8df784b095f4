package stall

import (
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// inRecv returns the chase of rank 0 of three, which waits in Recv for the given ranks since a
// second, and has asked them.
func inRecv(others ...int) (*Chase, *Wait) {
	c := &Chase{Self: 0, Ranks: 3, Send: func(int, *Signal) {}}
	w := &Wait{Envelope: transport.Envelope{Call: transport.Call{Kind: transport.KindPoint}}, For: others, Since: time.Second, Blocking: true}
	c.Ask(w, 2*time.Second)
	return c, w
}

// lead records that firm waits lead from a rank to an anchor.
func (c *Chase) lead(w *Wait, from int, to Anchor) {
	c.RecordTell(from, &Signal{Kind: Tell, Envelope: w.Envelope, At: 2 * time.Second, State: NotYet, End: End{Slow: noLink(), Anchor: to}}, w, true, 3*time.Second)
}

// Only the anchor of the present wait proves a deadlock: that of an earlier wait shows that this
// rank has gone on since.
func TestAnchorOfEarlierWait(t *testing.T) {
	for since, want := range map[time.Duration]bool{time.Second: true, time.Second - 1: false} {
		c, w := inRecv(1)
		c.lead(w, 1, Anchor{Rank: 0, Since: since, Hops: 2})
		if got := c.IsDeadlock(w); got != want {
			t.Errorf("anchor since %v: deadlock is %v", since, got)
		}
		// A message has come meanwhile.
		if w.Since++; c.IsDeadlock(w) {
			t.Errorf("anchor since %v: deadlock after a message", since)
		}
	}
}

// A wait for any of several ranks is a deadlock only if each of them is in the cycle.
func TestWaitForAny(t *testing.T) {
	c, w := inRecv(1, 2)
	w.Any = true
	c.lead(w, 1, Anchor{Rank: 0, Since: w.Since, Hops: 1})
	if c.IsDeadlock(w) {
		t.Error("deadlock although rank 2 has not told")
	}
	c.lead(w, 2, noAnchor())
	if c.IsDeadlock(w) {
		t.Error("deadlock although rank 2 is not blocked")
	}
	if c.lead(w, 2, Anchor{Rank: 0, Since: w.Since, Hops: 1}); !c.IsDeadlock(w) {
		t.Error("no deadlock of all ranks")
	}
}
