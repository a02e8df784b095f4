package direct

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unsentLimit returns the limit of unsent bytes of a TCP connection. It is 0 or the system's default if no limit was set.
func unsentLimit(t *testing.T, sock net.Conn) (room uint32) {
	t.Helper()
	err := control(sock, func(fd int) error {
		n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		room = uint32(n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return room
}

// A TCP connection has the limit that was set last, and the limit can be removed.
func TestLimitUnsent(t *testing.T) {
	a, b := connected(t, opened(t), ways()["plain"])
	other := unsentLimit(t, b.sock)
	for _, want := range []uint32{queueLeast, 100_000, noLimit, queueMost} {
		limitUnsent(a.sock, want)
		if got := unsentLimit(t, a.sock); got != want {
			t.Errorf("at most %d bytes wait, want %d", got, want)
		}
	}
	if got := unsentLimit(t, b.sock); got != other {
		t.Errorf("at most %d bytes wait at the other side, before %d", got, other)
	}
}

// Each connection of a bundle has a limit from the start, at both sides. When the limit of the bundle changes, each connection
// gets its part of it, but at least one stripe.
func TestLimitUnsentOfBundles(t *testing.T) {
	for _, name := range []string{"plain bundle", "tls bundle"} {
		a, b := connected(t, opened(t), ways()[name])
		checkLimits(t, name, a.sock, stripeSize)
		checkLimits(t, name, b.sock, stripeSize)
		n := uint32(ways()[name].socks)
		for room, want := range map[uint32]uint32{
			queueLeast: stripeSize, queueMost: max(stripeSize, queueMost/n), 7 * stripeSize * n: 7 * stripeSize, noLimit: noLimit,
		} {
			limitAll(socksOf(a.sock), room)
			checkLimits(t, name, a.sock, want)
		}
		checkLimits(t, name, b.sock, stripeSize)
	}
}

// checkLimits checks that every connection of a bundle has the same limit.
func checkLimits(t *testing.T, name string, sock net.Conn, want uint32) {
	t.Helper()
	if len(socksOf(sock)) < 2 {
		t.Fatalf("%s: it is one connection", name)
	}
	for i, s := range socksOf(sock) {
		if got := unsentLimit(t, s); got != want {
			t.Errorf("%s: at most %d bytes wait at connection %d, want %d", name, got, i, want)
		}
	}
}

// The rate of a bundle is computed from the bytes of all its connections, and the limits follow this rate.
func TestBundleFitsLimits(t *testing.T) {
	a, b := connected(t, opened(t), ways()["plain bundle"])
	for n := 0; a.queue.limit == 0; n++ {
		if n == 100_000 {
			t.Fatal("no rate was found")
		}
		carry(t, a, b, pieces{{nil, make([]byte, queueCheck)}})
	}
	bytes, busy := carriedOver(socksOf(a.sock))
	first, _ := carried(socksOf(a.sock)[0])
	if busy < queueBusy || bytes < 2*first || first == 0 {
		t.Errorf("%d bytes have arrived in %v, %d of them over the first connection", bytes, busy, first)
	}
}

// A Unix socket has no limit and no known rate.
func TestLimitUnsentOfUnix(t *testing.T) {
	a, _ := connected(t, opened(t), ways()["unix"])
	a.queue.count(a.sock, queueCheck)
	limitUnsent(a.sock, queueLeast)
	if bytes, busy := carried(a.sock); bytes != 0 || busy != 0 || a.queue.limit != 0 {
		t.Errorf("at most %d bytes wait where %d have arrived in %v", a.queue.limit, bytes, busy)
	}
}

// The kernel counts the bytes that have arrived, and the time that this took.
func TestCarried(t *testing.T) {
	a, b := connected(t, opened(t), ways()["plain"])
	bytes, busy := carried(a.sock)
	for n := uint64(0); n < 4 || busy < queueBusy; n++ {
		carry(t, a, b, pieces{{nil, make([]byte, queueCheck)}})
		now, was := uint64(0), busy
		if now, busy = carried(a.sock); now < bytes+n*queueCheck || busy < was {
			t.Fatalf("%d bytes have arrived in %v, before these %d were there %d in %v", now, busy, (n+1)*queueCheck, bytes, was)
		}
		if n > 1<<13 {
			t.Fatalf("%d bytes have arrived in %v", now, busy)
		}
	}
}

// The rate is checked after queueCheck bytes, however they are divided into writes. If the link was busy long enough, the
// connection then has the new limit.
func TestQueueLooks(t *testing.T) {
	for _, name := range []string{"plain", "tls"} {
		a, b := connected(t, opened(t), ways()[name])
		if err := exchange(a, b); err != nil {
			t.Fatal(err)
		}
		a.queue.busy = -time.Hour // so that a rate is found
		before := unsentLimit(t, a.sock)
		carry(t, a, b, pieces{{make([]byte, 64), make([]byte, queueCheck-a.queue.sent-64-1)}})
		if got := unsentLimit(t, a.sock); got != before || a.queue.limit != 0 {
			t.Errorf("%s: a limit of %d bytes after %d", name, got, a.queue.sent)
		}
		carry(t, a, b, pieces{{nil, make([]byte, 1)}})
		if got := unsentLimit(t, a.sock); a.queue.limit == 0 || got != a.queue.limit || a.queue.sent != 0 {
			t.Errorf("%s: a limit of %d bytes, want %d; %d bytes since the last look", name, got, a.queue.limit, a.queue.sent)
		}
	}
}

// carry sends frames from one side to the other.
func carry(t *testing.T, from, to *Conn, frames pieces) {
	t.Helper()
	wrote := make(chan error, 1)
	go func() { wrote <- writePieces(from, frames) }()
	if err := errors.Join(readPieces(to, frames), <-wrote); err != nil {
		t.Fatal(err)
	}
}
