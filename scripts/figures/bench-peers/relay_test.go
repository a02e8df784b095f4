package main

import (
	"testing"
	"time"
)

// A packet takes the delay plus its time on the link. Successive packets arrive at the rate of the
// link, even if all are sent at the same time.
func TestPace(t *testing.T) {
	start := time.Unix(1000, 0)
	var p pace
	const bytes = 1500
	each := time.Duration(bytes / delayRate * 1e9)
	for i := range 100 {
		due, ok := p.enter(start, bytes)
		if want := start.Add(delayOne + time.Duration(i+1)*each); !ok || due != want {
			t.Fatalf("packet %d: due after %v, %v, want %v", i, due.Sub(start), ok, want.Sub(start))
		}
	}
	later := start.Add(time.Second) // the link is idle by then
	if due, ok := p.enter(later, bytes); !ok || due != later.Add(delayOne+each) {
		t.Errorf("after a pause: due after %v, %v", due.Sub(later), ok)
	}
}

// Packets are dropped only while the queue is full.
func TestPaceDrops(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pace
	kept := 0
	for {
		if _, ok := p.enter(now, 1500); !ok {
			break
		}
		kept++
	}
	// The path accepts the bytes of the queue, and one more packet.
	if want := int(delayRate * delayQueue.Seconds() / 1500); kept < want || kept > want+2 {
		t.Errorf("%d packets were taken at once, want about %d", kept, want)
	}
	if _, ok := p.enter(now.Add(time.Millisecond), 1500); !ok {
		t.Error("a packet was dropped though one had left")
	}
}
