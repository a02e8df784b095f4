package mesh

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// runLink simulates a link, which passes pieces one after the other at a rate in bytes per second.
// The acknowledgement of a piece comes after the round-trip time delay. For the time span runLink
// sends as much as the window allows. It returns the bytes that got through, and the longest
// queueing time in the second half of the span.
func runLink(rate float64, delay, span time.Duration) (through int, longest time.Duration) {
	p := newCongestionWindow()
	start := time.Unix(0, 0)
	now, free := start, start // free: when the link has passed all pieces that it has
	var acks []time.Time
	for now.Before(start.Add(span)) {
		for p.reserve(pieceSize, now) {
			free = later(free, now).Add(time.Duration(float64(pieceSize) / rate * float64(time.Second)))
			if queue := free.Sub(now); now.After(start.Add(span / 2)) {
				longest = max(longest, queue)
			}
			acks = append(acks, free.Add(delay))
		}
		now, acks = acks[0], acks[1:]
		p.acknowledge(now)
		through += pieceSize
	}
	return through, longest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// On links of all speeds and delays an answer uses most of the link and does not
// build up a queue.
func TestPacer(t *testing.T) {
	for _, mbit := range []float64{10, 100, 1000, 10_000} {
		for _, delay := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
			rate := mbit * 1e6 / 8
			through, queue := runLink(rate, delay, 10*time.Second)
			share := float64(through) / (rate * 10)
			// The window is at most 4 MiB per round trip, and at least two pieces.
			most := min(1, float64(maxWindow)/(rate*delay.Seconds()))
			floor := time.Duration(2 * minWindow / rate * float64(time.Second))
			if share < most*0.7 || queue > max(3*maxQueueing, floor) {
				t.Errorf("%v Mbit/s, %v: uses %.2f of the link, queue %v", mbit, delay, share, queue)
			}
		}
	}
}

// In whatever order sends and acknowledgements come, the window counts the bytes in flight
// correctly, and its size stays within its limits. If nothing is in flight there is room for one
// piece.
func TestPacerBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := newCongestionWindow(), time.Unix(0, 0)
		var sizes []int
		total := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50_000_000).Draw(t, "wait")))
			if rapid.Bool().Draw(t, "send") {
				size := rapid.IntRange(1, pieceSize).Draw(t, "size")
				if p.reserve(size, now) {
					sizes = append(sizes, size)
					total += size
				} else if total == 0 {
					t.Fatal("nothing under way, and no room")
				}
			} else if p.acknowledge(now) != (len(sizes) > 0) {
				t.Fatalf("%d pieces under way", len(sizes))
			} else if len(sizes) > 0 {
				total -= sizes[0]
				sizes = sizes[1:]
			}
			if p.inFlight != total || p.size < minWindow || p.size > maxWindow {
				t.Fatalf("%d bytes under way, not %d; window %d", p.inFlight, total, p.size)
			}
		}
	})
}
