package direct

import (
	"math"
	"net"
	"time"
)

// Urgent messages wait behind the bytes that the kernel has not sent yet (head-of-line blocking).
// So the limit of unsent bytes is the amount that the link carries in queueTime, at least
// queueLeast. queueTime is longer than the time for which a computing program leaves the connection
// unattended. A limit above queueMost is not set: on so fast a link nothing waits for long.
const (
	queueTime  = time.Millisecond
	queueLeast = 16 << 10
	queueMost  = 256 << 10
	noLimit    = math.MaxUint32
	// queueCheck is the number of bytes after which the rate of the link is checked. queueBusy is
	// how long the link must have been busy since the last check, which is some ticks of the
	// kernel's clock.
	queueCheck = 1 << 20
	queueBusy  = 20 * time.Millisecond
)

// queue adapts the limit of unsent bytes in the kernel to the rate of the link. The writer of the
// connection owns it; there is no lock. The system's default limit would hold megabytes, which at
// 100 Mbit/s delay an urgent message by hundreds of milliseconds.
type queue struct {
	sent int // bytes written since the last check
	// carried is the number of bytes that had arrived when the rate was last computed.
	carried uint64
	// busy is the time for which the link had been busy when the rate was last computed.
	busy  time.Duration
	rate  float64 // decaying maximum of the rate in bytes per second: with little to send the measured rate is too low
	limit uint32  // limit of unsent bytes; 0: the system's default
}

// count counts n bytes that are about to be written, and adapts the limit after queueCheck bytes.
func (q *queue) count(sock net.Conn, n int) {
	if q.sent += n; q.sent < queueCheck {
		return
	}
	q.sent = 0
	socks := socksOf(sock)
	// The rate counts the bytes that the kernel reports as acknowledged, and not the written bytes.
	rate, ok := q.rateSince(carriedOver(socks))
	if !ok {
		return
	}
	if limit := q.limitFor(rate); limit != q.limit {
		q.limit = limit
		limitAll(socks, limit)
	}
}

// carriedOver returns the result of carried for a bundle: bytes is the sum over its connections.
// They are busy at the same time, so busy is the maximum.
func carriedOver(socks []net.Conn) (bytes uint64, busy time.Duration) {
	for _, s := range socks {
		b, t := carried(s)
		bytes, busy = bytes+b, max(busy, t)
	}
	return bytes, busy
}

// limitAll divides the limit of unsent bytes among the connections of a bundle. Each gets at least
// one stripe: with less a connection would have nothing to send while the writer is at the others.
func limitAll(socks []net.Conn, room uint32) {
	if n := uint32(len(socks)); n > 1 && room < noLimit {
		room = max(stripeSize, room/n)
	}
	for _, s := range socks {
		limitUnsent(s, room)
	}
}

// rateSince returns the rate since it was last computed, in bytes per second; false if the link was
// busy for less than queueBusy since.
func (q *queue) rateSince(carried uint64, busy time.Duration) (rate float64, ok bool) {
	took := busy - q.busy
	if took < queueBusy {
		return 0, false
	}
	rate = float64(carried-q.carried) / took.Seconds()
	q.carried, q.busy = carried, busy
	return rate, true
}

// limitFor returns the limit for a measured rate. Changes of less than a quarter are ignored
// (hysteresis).
func (q *queue) limitFor(rate float64) uint32 {
	q.rate = max(rate, q.rate*7/8)
	room := q.rate * queueTime.Seconds()
	switch {
	case room > queueMost:
		return noLimit
	case q.limit > 0 && math.Abs(room-float64(q.limit)) < float64(q.limit)/4:
		return q.limit
	}
	return uint32(max(queueLeast, room))
}
