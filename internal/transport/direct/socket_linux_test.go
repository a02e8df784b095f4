package direct

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unsentLimit returns the bound of the bytes that wait to be sent over a TCP connection. Where
// none was set it is 0 or what the system has for all.
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

// A TCP connection has the limit that was set last, and that can be lifted.
func TestLimitUnsent(t *testing.T) {
	a, b := connected(t, opened(t), ways()["plain"])
	other := unsentLimit(t, b.sock)
	for _, want := range []uint32{queueLeast, 100_000, none, queueMost} {
		limitUnsent(a.sock, want)
		if got := unsentLimit(t, a.sock); got != want {
			t.Errorf("at most %d bytes wait, want %d", got, want)
		}
	}
	if got := unsentLimit(t, b.sock); got != other {
		t.Errorf("at most %d bytes wait at the other side, before %d", got, other)
	}
}

// What is not one TCP connection gets no limit, and has no rate that is known.
func TestLimitUnsentOfOthers(t *testing.T) {
	for _, name := range []string{"unix", "plain bundle", "tls bundle"} {
		a, _ := connected(t, opened(t), ways()[name])
		before := limitsOf(t, a.sock)
		a.queue.wrote(a.sock, queueCheck)
		limitUnsent(a.sock, queueLeast)
		if bytes, busy := carried(a.sock); bytes != 0 || busy != 0 || a.queue.limit != 0 {
			t.Errorf("%s: at most %d bytes wait where %d have arrived in %v", name, a.queue.limit, bytes, busy)
		}
		if after := limitsOf(t, a.sock); !slices.Equal(after, before) {
			t.Errorf("%s: at most %v bytes wait at the connections, before %v", name, after, before)
		}
	}
}

// limitsOf returns the bounds of the connections of a bundle, none of another socket.
func limitsOf(t *testing.T, sock net.Conn) []uint32 {
	t.Helper()
	var all []uint32
	if b, ok := sock.(*bundle); ok {
		for _, s := range b.socks {
			all = append(all, unsentLimit(t, s))
		}
	}
	return all
}

// The kernel counts what has arrived, and the time that this took.
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

// The link is looked at after so many bytes, however they are written, and when it was busy for
// long enough the connection has the limit that fits.
func TestQueueLooks(t *testing.T) {
	for _, name := range []string{"plain", "tls"} {
		a, b := connected(t, opened(t), ways()[name])
		if err := exchange(a, b); err != nil {
			t.Fatal(err)
		}
		a.queue.busy = -time.Hour // so that there is a rate
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

// carry takes frames from one side to the other.
func carry(t *testing.T, from, to *Conn, frames pieces) {
	t.Helper()
	wrote := make(chan error, 1)
	go func() { wrote <- writePieces(from, frames) }()
	if err := errors.Join(readPieces(to, frames), <-wrote); err != nil {
		t.Fatal(err)
	}
}
