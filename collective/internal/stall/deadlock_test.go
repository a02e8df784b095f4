package stall

import (
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Only the anchor of the present wait proves a deadlock: that of an earlier wait shows that this
// rank has gone on since.
func TestAnchorOfEarlierWait(t *testing.T) {
	for since, want := range map[time.Duration]bool{time.Second: true, time.Second - 1: false} {
		c := &Chase{Self: 0, Ranks: 3, Send: func(int, *Signal) {}}
		w := &Wait{Envelope: transport.Envelope{Call: transport.Call{Kind: transport.KindPoint}}, For: []int{1}, Since: time.Second, Blocking: true}
		c.Ask(w, 2*time.Second)
		told := End{Slow: noLink(), Anchor: Anchor{Rank: 0, Since: since, Hops: 2}}
		c.RecordTell(1, &Signal{Kind: Tell, Envelope: w.Envelope, At: 2 * time.Second, State: NotYet, End: told}, w, true, 3*time.Second)
		if got := c.IsDeadlock(w); got != want {
			t.Errorf("anchor since %v: deadlock is %v", since, got)
		}
		// A message has come meanwhile.
		if w.Since++; c.IsDeadlock(w) {
			t.Errorf("anchor since %v: deadlock after a message", since)
		}
	}
}
