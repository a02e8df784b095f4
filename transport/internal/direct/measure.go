package direct

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A measurement uses a TCP connection of its own, so that several addresses of a peer can be
// compared before one of them gets the data:
//
//	dialler                                   acceptor
//	number of the ticket's measurements, 0
//	0 (four bytes)                        ->
//	                                      <-  proof that it holds the ticket
//	n (four bytes), n bytes               ->
//	                                      <-  one byte
//	... with n doubled until a round takes roundEnough; then the dialler closes.
//
// Nothing is encrypted, because the bytes have no meaning. The proof shows that the answers come
// from the acceptor.
const (
	firstRound = 16 << 10
	lastRound  = 2 << 20
	// roundEnough is how long a round must take for its rate to count: the buffers of a shaped or
	// wireless link absorb the bytes of shorter rounds.
	roundEnough = 15 * time.Millisecond
	// maxMeasured is the number of bytes that an acceptor reads on one connection, and
	// maxMeasurements the number of connections that may measure with one ticket.
	maxMeasured     = 2 * lastRound
	maxMeasurements = 32
	// measureTime is the acceptor's timeout for a connection.
	measureTime = 5 * time.Second
)

// measureLabel separates the proof of an acceptor in a measurement from its other proofs.
const measureLabel = "elrun direct measured"

// Speed is the result of a measurement. It describes an idle path in one direction; traffic of the
// job slows it down.
type Speed struct {
	RoundTrip time.Duration
	Rate      float64 // bytes per second, from the dialler to the acceptor
}

// Time returns how long a message of n bytes takes to arrive. If the rate is not known, Time
// returns half the round trip.
func (s Speed) Time(n int) time.Duration {
	if s.Rate <= 0 {
		return s.RoundTrip / 2
	}
	return s.RoundTrip/2 + time.Duration(float64(n)/s.Rate*float64(time.Second))
}

// measureIn measures the path to the process that waits for the holder of t, at a TCP target. It
// sends data only while it holds turn: 4 MiB at most, in some 30 ms on links of up to 1 Gbit/s. The
// ticket stays valid.
func measureIn(ctx context.Context, to Target, t Ticket, turn sync.Locker) (Speed, error) {
	s, err := measure(ctx, to, t, turn)
	if err != nil {
		return Speed{}, fmt.Errorf("direct: measure %s: %w", to.Addr, err)
	}
	return s, nil
}

// measure does the work of measureIn.
func measure(ctx context.Context, to Target, t Ticket, turn sync.Locker) (s Speed, err error) {
	sock, rest, err := to.reach(ctx)
	if err != nil {
		return s, err
	}
	defer sock.Close()
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	number := t.measureNumber()
	begun := time.Now()
	// The zeros are the count of connections and the length of an empty first round.
	if _, err := sock.Write(append(number[:], 0, 0, 0, 0, 0)); err != nil {
		return s, err
	}
	if _, err := t.check(sock, measureLabel); err != nil {
		return s, errors.Join(context.Cause(ctx), err)
	}
	s.RoundTrip = time.Since(begun)
	// The round trips of all addresses are measured at the same time. The rounds of data are
	// measured for one address after the other.
	turn.Lock()
	defer turn.Unlock()
	for n := firstRound; n <= lastRound; n *= 2 {
		took, err := round(sock, n)
		if err != nil {
			return s, errors.Join(context.Cause(ctx), err)
		}
		s.RoundTrip = min(s.RoundTrip, took)
		// The lower bound keeps the noise of the clock from making the rate infinite.
		s.Rate = float64(n) / max(took-s.RoundTrip, 10*time.Microsecond).Seconds()
		if took-s.RoundTrip >= roundEnough {
			break
		}
	}
	return s, nil
}

// round sends n bytes and waits for the acknowledgement. It returns the time from the first byte
// sent to the acknowledgement: the transfer time of the bytes and one round trip.
func round(sock net.Conn, n int) (time.Duration, error) {
	b := make([]byte, 4+n)
	binary.LittleEndian.PutUint32(b, uint32(n))
	begun := time.Now()
	if _, err := sock.Write(b); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(sock, b[:1]); err != nil {
		return 0, err
	}
	return time.Since(begun), nil
}

// measureNumber returns the number by which an acceptor recognises measurements.
func (t *Ticket) measureNumber() [numberSize]byte {
	return [numberSize]byte(t.proof(measureLabel + " number"))
}

// serveMeasurement is the acceptor's side of a measurement, until the dialler closes the
// connection.
func serveMeasurement(sock net.Conn, t *Ticket) error {
	if err := sock.SetDeadline(time.Now().Add(measureTime)); err != nil {
		return err
	}
	left := maxMeasured
	answer := t.proof(measureLabel)
	for {
		var head [4]byte
		if _, err := io.ReadFull(sock, head[:]); err != nil {
			return err
		}
		n := int(binary.LittleEndian.Uint32(head[:]))
		// The dialler is a member, but a faulty member must not make this host read without end.
		if left -= n; n > lastRound || left < 0 {
			return fmt.Errorf("the dialler announced a round of %d bytes, %d in all, want at most %d a round and %d in all: %w",
				n, maxMeasured-left, lastRound, maxMeasured, ErrFormat)
		}
		if _, err := io.CopyN(io.Discard, sock, int64(n)); err != nil {
			return err
		}
		if _, err := sock.Write(answer); err != nil {
			return err
		}
		// The first answer proves that this side holds the ticket; one byte is enough afterwards.
		answer = answer[:1]
	}
}

// measuredLocked counts a measurement. It returns false beyond maxMeasurements.
func (w *Wait) measuredLocked() bool {
	w.measurements++
	return w.measurements <= maxMeasurements
}
