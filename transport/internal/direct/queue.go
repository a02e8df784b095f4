package direct

import (
	"math"
	"net"
	"time"
)

// What has not been sent waits in the kernel, and what is more urgent waits behind it. So no
// more is given to it than the link carries in queueTime, which is longer than a program that
// computes looks away; queueLeast at least. From queueMost on it makes no difference: a link
// that is so fast lets nothing wait for long.
const (
	queueTime  = time.Millisecond
	queueLeast = 16 << 10
	queueMost  = 256 << 10
	noLimit    = math.MaxUint32
	// queueCheck is after how many bytes the link is looked at, and queueBusy how long it has
	// to have carried something by then, which is some ticks of the kernel's clock.
	queueCheck = 1 << 20
	queueBusy  = 20 * time.Millisecond
)

// queue fits what waits in the kernel to the rate of the link.
type queue struct {
	sent    int           // bytes since the link was last looked at
	carried uint64        // bytes that had arrived when its rate was last found
	busy    time.Duration // while which it had carried something by then
	rate    float64       // the highest of late, in bytes per second: while little is sent it seems lower
	limit   uint32        // of the bytes that wait; 0 for that of the system
}

// wrote takes note that n bytes are about to be written.
func (q *queue) wrote(sock net.Conn, n int) {
	if q.sent += n; q.sent < queueCheck {
		return
	}
	q.sent = 0
	socks := socksOf(sock)
	rate, ok := q.look(carriedOver(socks))
	if !ok {
		return
	}
	if limit := q.fit(rate); limit != q.limit {
		q.limit = limit
		limitAll(socks, limit)
	}
}

// carriedOver returns how many bytes have arrived over connections that are used as one, and
// for how long bytes were on their way. All are used at the same time, so the longest counts.
func carriedOver(socks []net.Conn) (bytes uint64, busy time.Duration) {
	for _, s := range socks {
		b, t := carried(s)
		bytes, busy = bytes+b, max(busy, t)
	}
	return bytes, busy
}

// limitAll divides the room for bytes that wait among connections that are used as one. Of
// several each has room for a turn of the writer: with less it would have nothing to send
// while the others have their turns.
func limitAll(socks []net.Conn, room uint32) {
	if n := uint32(len(socks)); n > 1 && room < noLimit {
		room = max(stripeSize, room/n)
	}
	for _, s := range socks {
		limitUnsent(s, room)
	}
}

// look returns the rate at which bytes have arrived since it was last found, unless the link
// was busy for too short a time since.
func (q *queue) look(carried uint64, busy time.Duration) (rate float64, ok bool) {
	took := busy - q.busy
	if took < queueBusy {
		return 0, false
	}
	rate = float64(carried-q.carried) / took.Seconds()
	q.carried, q.busy = carried, busy
	return rate, true
}

// fit returns the limit after the link was seen to carry bytes at a rate. It does not follow
// each little change.
func (q *queue) fit(rate float64) uint32 {
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
