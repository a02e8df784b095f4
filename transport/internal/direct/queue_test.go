package direct

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// look is a measured rate of a link, in bytes per second, with the resulting limit.
type look struct {
	rate  float64
	limit uint32
}

func TestFit(t *testing.T) {
	for name, looks := range map[string][]look{
		"1 Mbit/s":                 {{125e3, queueLeast}},
		"1 Gbit/s":                 {{125e6, 125_000}},
		"4 Gbit/s":                 {{500e6, noLimit}},
		"as much as makes a limit": {{queueMost * 1e3, queueMost}, {queueMost*1e3 + 1e3, noLimit}},
		"it becomes faster":        {{40e6, 40_000}, {49e6, 40_000}, {51e6, 51_000}, {1e9, noLimit}},
		"it becomes slower":        {{40e6, 40_000}, {20e6, 40_000}, {20e6, 40_000}, {20e6, 26_796}, {20e6, 26_796}, {20e6, 26_796}, {20e6, 20_000}},
		"it becomes much slower":   {{20e6, 20_000}, {1, 20_000}, {1, 20_000}, {1, queueLeast}, {1, queueLeast}},
		"it is not fast any more":  {{264e6, noLimit}, {1, 231_000}},
		"it seems slow for once":   {{40e6, 40_000}, {1, 40_000}, {40e6, 40_000}},
	} {
		var q queue
		for i, l := range looks {
			if q.limit = q.limitFor(l.rate); q.limit != l.limit {
				t.Errorf("%s: look %d, %v bytes a second: at most %d wait, want %d", name, i, l.rate, q.limit, l.limit)
				break
			}
		}
	}
}

// The rate is computed over the time in which the link was busy, but only if that was long enough.
func TestLook(t *testing.T) {
	var q queue
	for i, l := range []struct {
		carried uint64
		busy    time.Duration
		want    float64 // 0 if no rate is found
	}{
		{1 << 20, queueBusy - 1, 0},
		{2 << 20, queueBusy, (2 << 20) / queueBusy.Seconds()},
		{3 << 20, queueBusy + 12*time.Millisecond, 0},
		{4 << 20, 3 * queueBusy, (1 << 20) / queueBusy.Seconds()},
	} {
		if rate, ok := q.rateSince(l.carried, l.busy); rate != l.want || ok != (l.want > 0) {
			t.Errorf("look %d: %v bytes a second, want %v", i, rate, l.want)
		}
	}
}

// drawRate draws a rate in bytes per second from 8 kbit/s to 400 Gbit/s, uniformly in its
// logarithm.
func drawRate(t *rapid.T, name string) float64 {
	return math.Pow(10, rapid.Float64Range(3, math.Log10(50e9)).Draw(t, name))
}

// After any history, only slow links have a limit, and no limit is below queueLeast. Small changes of the rate do not change the
// limit. The limit suits a steady rate.
func TestFitFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		for range rapid.IntRange(0, 20).Draw(t, "looks") {
			checkFit(t, &q, drawRate(t, "rate"))
		}
		rate := drawRate(t, "rate at last")
		for range 200 { // enough steps of a factor 8/7 to get from any rate to any other
			checkFit(t, &q, rate)
		}
		room := max(queueLeast, rate*queueTime.Seconds())
		switch {
		case room > queueMost && q.limit != noLimit, room <= queueMost && !near(room, q.limit):
			t.Fatalf("%v bytes a second: at most %d wait, want %v", rate, q.limit, room)
		}
	})
}

// checkFit passes a rate to q. It checks that the new limit is valid, and that it is either the old limit or clearly different.
func checkFit(t *rapid.T, q *queue, rate float64) {
	before := q.limit
	q.limit = q.limitFor(rate)
	if q.limit < queueLeast || q.limit > queueMost && q.limit != noLimit {
		t.Fatalf("%v bytes a second: at most %d wait", rate, q.limit)
	}
	// The limit was rounded down to an integer.
	if q.limit != before && q.limit > queueLeast && near(float64(q.limit)+1, before) && near(float64(q.limit), before) {
		t.Fatalf("%v bytes a second: at most %d wait, before %d", rate, q.limit, before)
	}
}

// near reports whether a limit is so close to room that it may stay.
func near(room float64, limit uint32) bool {
	return math.Abs(room-float64(limit)) < float64(limit)/4
}

// A connection with a very small limit still carries all bytes.
func TestConnWithLimit(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, opened(t), w)
			for _, c := range []*Conn{a, b} {
				limitAll(socksOf(c.sock), queueLeast)
				c.queue.sent = math.MinInt // disables the check of the rate, so that the limit stays
			}
			done := make(chan error, 4)
			for _, ends := range [][2]*Conn{{a, b}, {b, a}} {
				go func() { done <- writePieces(ends[0], manyPieces()) }()
				go func() { done <- readPieces(ends[1], manyPieces()) }()
			}
			if err := errors.Join(<-done, <-done, <-done, <-done); err != nil {
				t.Error(err)
			}
		})
	}
}

// manyPieces returns several MiB of frames with different lengths, the same frames on each call.
func manyPieces() pieces {
	var all pieces
	for i := range 40 {
		head, body := make([]byte, 64), make([]byte, i*i*i*7%(400<<10))
		for at := range body {
			body[at] = byte(at*at>>8 + at + i)
		}
		all = append(all, [2][]byte{head, body})
	}
	return all
}
