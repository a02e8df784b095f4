package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// Limits of a dial and of a measurement. A target must answer within replyTime, or unixTime on a
// Unix socket: within a host no packets are lost, but a loaded host may schedule the peer late. What
// follows may take that time and replyTrips times as long as the target took to answer. Over slow
// links the round trips of a handshake alone take longer than replyTime.
const (
	replyTime  = 2 * time.Second
	unixTime   = 30 * time.Second
	replyTrips = 8
)

// Dial connects with the process that waits for the holder of t. If cfg is not nil, connections
// over TCP use TLS. A target that does not answer in time is an error with the method Timeout.
func Dial(ctx context.Context, to Target, t Ticket, cfg *tls.Config) (*Conn, error) {
	c, err := dial(ctx, to, t, cfg)
	if err != nil {
		return nil, fmt.Errorf("direct: dial %s %s: %w", to.Network, to.Addr, err)
	}
	return c, nil
}

// dial does the work of Dial. The end of ctx interrupts reads and writes by a deadline in the past.
func dial(ctx context.Context, to Target, t Ticket, cfg *tls.Config) (*Conn, error) {
	first, rest, err := to.reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	socks := connectMore(ctx, to, first)
	sock := newBundle(socks)
	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(time.Unix(1, 0)) })
	c, err := present(sock, socks, t, cfg)
	if !stop() {
		// The function of AfterFunc has begun, and may set the deadline only now.
		err = context.Cause(ctx) // also after a success: the deadline may break the connection at any time
	}
	if err != nil {
		_ = sock.Close()
		return nil, err
	}
	c.target = to
	return c, nil
}

// Dialer returns a dialer that sets the options of the target on each socket before it connects.
// The segment size must be set before, as it is announced in the SYN.
func (to Target) Dialer() *net.Dialer {
	return &net.Dialer{Control: func(network, addr string, raw syscall.RawConn) error {
		if err := avoidBBR(network, addr, raw); err != nil || to.MSS == 0 {
			return err
		}
		return boundSegments(raw, to.MSS)
	}}
}

// reach makes the first connection. rest is how long what follows may take.
func (to Target) reach(ctx context.Context) (first net.Conn, rest time.Duration, err error) {
	limit := replyTime
	if to.Network == "unix" {
		limit = unixTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	for again := (pause.Backoff{First: time.Millisecond, Last: 50 * time.Millisecond}); ; {
		first, err = to.Dialer().DialContext(ctx, to.Network, to.Addr)
		// For a full queue of a Unix socket the kernel reports EAGAIN at once, instead of waiting.
		if !errors.Is(err, syscall.EAGAIN) || again.Wait(ctx) != nil {
			return first, afterReply(limit, time.Since(begun)), err
		}
	}
}

// afterReply returns how long the rest of a dial may take at a target that took so long to answer.
func afterReply(limit, took time.Duration) time.Duration { return limit + replyTrips*took }

// connectMore makes as many further connections as are needed to fill the path; their number
// follows from the round trip of the first one. Failures are ignored, as fewer connections are only
// slower.
func connectMore(ctx context.Context, to Target, first net.Conn) []net.Conn {
	d := to.Dialer()
	// On a Unix socket the round trip is 0, so there is one connection.
	more := make([]net.Conn, stripes(roundTrip(first))-1)
	var dials sync.WaitGroup
	for i := range more {
		dials.Go(func() {
			if s, err := d.DialContext(ctx, to.Network, to.Addr); err == nil {
				more[i] = s
			}
		})
	}
	dials.Wait()
	socks := []net.Conn{first}
	for _, s := range more {
		if s != nil {
			socks = append(socks, s)
		}
	}
	return socks
}

// present sends the ticket's numbers and proof, and checks the other side's proof. sock is the
// bundle of all socks. The numbers go over each connection, all else over the bundle. An impostor
// at the address sees the numbers and the proof, which are valid once and for the acceptor's port
// only.
func present(sock net.Conn, socks []net.Conn, t Ticket, cfg *tls.Config) (*Conn, error) {
	// Each connection states the number of connections: the acceptor does not know which of them
	// comes first.
	var lead []byte
	for i, s := range socks {
		if err := checkUser(s); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProof, err)
		}
		lead = greeting(&t, i, len(socks))
		if isUnix(s) {
			break // it goes in one write with the proof
		}
		if _, err := s.Write(lead); err != nil {
			return nil, err
		}
		lead = nil
	}
	c := newConn(sock)
	if cfg != nil && !isUnix(sock) {
		if err := c.encrypt(func(below net.Conn) *tls.Conn { return tls.Client(below, cfg) }); err != nil {
			return nil, err
		}
	}
	if _, err := c.Write(append(lead, t.proof(dialLabel)...)); err != nil {
		return nil, err
	}
	// The other side's proof is the last step: without it the connection may lead to an impostor.
	var from io.Reader = c
	if isUnix(sock) {
		from = sock // without busy-polling: the acceptor needs a processor of this host
	}
	answer, err := t.check(from, answers()...)
	if err == nil && answer > 0 {
		err = Refusal(answer)
	}
	return c, err
}

// greeting returns the first bytes of the holder of a ticket on connection i of n.
func greeting(t *Ticket, i, n int) []byte {
	number := t.number(i)
	if t.claim != "" {
		n = hostStream
	}
	return append(append(number[:], byte(n)), t.claim...)
}
