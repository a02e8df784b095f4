package direct

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Both sides get a connection, which reports its kind.
func TestConnect(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			p := opened(t)
			a, b := connected(t, p, w)
			if err := errors.Join(exchange(a, b), exchange(b, a)); err != nil {
				t.Fatal(err)
			}
			kind := "direct"
			if w.network == "unix" {
				kind = "unix"
			}
			for _, c := range []*Conn{a, b} {
				if c.Kind() != kind || c.Encrypted() != w.tls {
					t.Errorf("it is %s, encrypted %v", c.Kind(), c.Encrypted())
				}
			}
			if to := target(t, p, w.network); a.Addr() != to.Addr {
				t.Errorf("it leads to %q, was dialled at %q", a.Addr(), to.Addr)
			}
			if (b.Addr() == "") != (w.network == "unix") {
				t.Errorf("it came from %q", b.Addr())
			}
		})
	}
}

// Dial computes the number of connections itself, and ends with its context.
func TestDial(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	a, b := newIdentity(t), newIdentity(t)
	for _, network := range []string{"tcp", "unix"} {
		ticket := NewTicket()
		w := p.Expect(ticket, b.with(a))
		c, err := Dial(within(t), target(t, p, network), ticket, a.with(b))
		if err != nil {
			t.Fatal(err)
		}
		d, err := w.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		w.Cancel()
		if err := errors.Join(exchange(c, d), c.Close(), d.Close()); err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// A dialler without the right ticket is refused. A dialler refuses a waiter that has not issued its ticket.
func TestRefused(t *testing.T) {
	a, b, other := newIdentity(t), newIdentity(t), newIdentity(t)
	ticket := NewTicket()
	wrongKey, wrongNumber := ticket, NewTicket()
	wrongKey.Key[0]++
	wrongNumber.Key = ticket.Key
	for name, test := range map[string]struct {
		dials    Ticket
		ours     *tls.Config
		theirs   *tls.Config
		networks string
		noted    bool // the waiting side counts the failure
	}{
		"wrong key":              {wrongKey, nil, nil, "tcp unix", true},
		"wrong key, encrypted":   {wrongKey, a.with(b), b.with(a), "tcp", true},
		"unknown number":         {wrongNumber, nil, nil, "tcp unix", false},
		"another one dials":      {ticket, other.with(b), b.with(a), "tcp", true},
		"another one waits":      {ticket, a.with(b), other.with(a), "tcp", true},
		"only who waits has TLS": {ticket, nil, b.with(a), "tcp", true},
		"only who dials has TLS": {ticket, a.with(b), nil, "tcp", true},
	} {
		for network := range strings.FieldsSeq(test.networks) {
			t.Run(name+"/"+network, func(t *testing.T) {
				keepsFiles(t)
				p := opened(t)
				w := p.Expect(ticket, test.theirs)
				defer w.Cancel()
				if c, err := Dial(within(t), target(t, p, network), test.dials, test.ours); err == nil {
					t.Errorf("connected with %s", c.Addr())
				}
				if !test.noted {
					p.mu.Lock()
					defer p.mu.Unlock()
					if _, ok := p.expected[ticket.Number]; !ok {
						t.Error("the port does not expect the dialler any more")
					}
					return
				}
				if c, err := w.Wait(within(t)); err == nil {
					t.Errorf("accepted %s", c.Addr())
				}
			})
		}
	}
}

// A ticket is valid for one connection. A second attempt does not disturb the first.
func TestTicketTwice(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	for _, network := range []string{"tcp", "unix"} {
		ticket := NewTicket()
		w := p.Expect(ticket, nil)
		to := target(t, p, network)
		c, err := Dial(within(t), to, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Dial(within(t), to, ticket, nil)
		if err == nil {
			t.Errorf("connected again with %s", again.Addr())
		}
		d, err := w.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		w.Cancel()
		if _, err := Dial(within(t), to, ticket, nil); err == nil {
			t.Error("connected when it was over")
		}
		if err := errors.Join(exchange(c, d), c.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// impostor listens for one connection and lets f act as the waiter.
func impostor(t *testing.T, f func(net.Conn)) Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		f(c)
	}()
	return Target{Network: "tcp", Addr: l.Addr().String()}
}

// An impostor in place of the waiter reads the dialler's number and proof. Nothing that it can send
// is a valid answer. If the impostor stays silent, the dialler's context ends the attempt.
func TestImpostorWaits(t *testing.T) {
	said := make([]byte, greetingSize+proofSize)
	for name, answer := range map[string]func(c net.Conn){
		"closes":   func(net.Conn) {},
		"repeats":  func(c net.Conn) { _, _ = c.Write(said[greetingSize:]) },
		"guesses":  func(c net.Conn) { _, _ = c.Write(make([]byte, proofSize)) },
		"too late": func(c net.Conn) { _, _ = c.Read(said) }, // until the other side closes
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			ctx, cancel := context.WithCancelCause(within(t))
			enough := errors.New("enough")
			to := impostor(t, func(c net.Conn) {
				if _, err := io.ReadFull(c, said); err != nil {
					t.Errorf("received no proof: %v", err)
				}
				if name == "too late" {
					cancel(enough)
				}
				answer(c)
			})
			c, err := Dial(ctx, to, NewTicket(), nil)
			if err == nil {
				t.Fatalf("took it for %s", c.Addr())
			}
			if errors.Is(err, enough) != (name == "too late") {
				t.Errorf("got %v", err)
			}
			cancel(nil)
		})
	}
}

// However slow a link is, a target that answers in time has time for the rest of a dial: further connections, the TLS handshake and
// the proofs take a round trip each, and lost packets as many again.
func TestAfterReply(t *testing.T) {
	for took := time.Microsecond; took <= replyTime; took *= 2 {
		if rest := afterReply(replyTime, took); rest < replyTime || rest < 2*3*took {
			t.Errorf("%v after an answer in %v", rest, took)
		}
	}
}

// The number of silent or malformed connections is limited, and they keep no honest peer out.
func TestStrangers(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	if p.local.most != maxUnixStrangers {
		t.Errorf("%d strangers over Unix sockets", p.local.most)
	}
	p.local.most = maxStrangers // with fewer open files
	for _, network := range []string{"tcp", "unix"} {
		to := target(t, p, network)
		var crowd []net.Conn
		for i := range 3 * maxStrangers {
			s := sockets(t, to, 1)[0]
			crowd = append(crowd, s)
			if _, err := io.WriteString(s, strings.Repeat("x", i%greetingSize)); err != nil {
				t.Logf("stranger %d: %v", i, err) // the port has already closed it to make room
			}
		}
		ticket := NewTicket()
		w := p.Expect(ticket, nil)
		c, err := Dial(within(t), to, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := w.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if n := max(len(p.remote.socks), len(p.local.socks)); n > maxStrangers { // the honest peer came last, so all of them were there
			t.Errorf("%d strangers at a time", n)
		}
		p.mu.Unlock()
		w.Cancel()
		if err := errors.Join(exchange(c, d), c.Close(), d.Close()); err != nil {
			t.Error(err)
		}
		for _, s := range crowd[:2*maxStrangers] {
			ended(t, s)
		}
		for _, s := range crowd {
			_ = s.Close()
		}
	}
}

// FuzzStranger checks that arbitrary bytes of a stranger never lead to a connection.
func FuzzStranger(f *testing.F) {
	ticket := Ticket{Number: [numberSize]byte{1, 2, 3}}
	f.Add([]byte("garbage"), byte(1))
	f.Add(ticket.Number[:], byte(maxStripes))
	f.Fuzz(func(t *testing.T, said []byte, count byte) {
		p, err := Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := p.Expect(ticket, nil)
		ours, theirs := net.Pipe()
		if !p.addStranger(theirs) {
			t.Fatal("closed")
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = ours.Write(append(said, count))
			_, _ = ours.Write(make([]byte, proofSize)) // not a proof of this key
		}()
		p.receive(theirs)
		select {
		case r := <-w.results:
			if r.err == nil {
				t.Errorf("%x got in", said)
			}
		default:
		}
		w.Cancel()
		if err := errors.Join(p.Close(), ours.Close()); err != nil || len(p.greeted) > 0 || len(p.remote.socks) > 0 {
			t.Errorf("%d and %d are left, %v", len(p.greeted), len(p.remote.socks), err)
		}
		<-written
	})
}

// A cancelled Wait leaves nothing behind, at whatever stage the connection is.
func TestCancel(t *testing.T) {
	a, b := newIdentity(t), newIdentity(t)
	for name, come := range map[string]func(t *testing.T, p *Port, ticket Ticket) net.Conn{
		"before anybody came": nil,
		"in the handshake": func(t *testing.T, p *Port, ticket Ticket) net.Conn {
			s := sockets(t, target(t, p, "tcp"), 1)[0]
			if _, err := s.Write(append(ticket.Number[:], 1)); err != nil {
				t.Fatal(err)
			}
			p.until(t, "recognised", func() bool { return len(p.greeted) == 1 })
			return s
		},
		"nobody has fetched it": func(t *testing.T, p *Port, ticket Ticket) net.Conn {
			c, err := Dial(within(t), target(t, p, "tcp"), ticket, a.with(b))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			p.until(t, "delivered", func() bool { return len(p.greeted) == 0 })
			return c.sock
		},
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			p := opened(t)
			ticket := NewTicket()
			w := p.Expect(ticket, b.with(a))
			var s net.Conn
			if come != nil {
				s = come(t, p, ticket)
			}
			w.Cancel()
			w.Cancel()
			if s == nil {
				s = sockets(t, target(t, p, "tcp"), 1)[0]
				if _, err := s.Write(append(ticket.Number[:], 1)); err != nil {
					t.Fatal(err)
				}
			}
			if name == "in the handshake" {
				_ = s.Close() // ends the connection before its time limit does
			} else {
				ended(t, s)
			}
			p.until(t, "forgotten", func() bool { return len(p.greeted)+len(p.expected)+len(p.remote.socks) == 0 })
		})
	}
}

// limited records the last deadline that was set.
type limited struct {
	net.Conn
	until time.Time
}

func (l *limited) SetDeadline(t time.Time) error {
	l.until = t
	return l.Conn.SetDeadline(t)
}

// The deadlines that bound the proof are removed after it.
func TestNoLimitStays(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	ticket := NewTicket()
	w := p.Expect(ticket, nil)
	defer w.Cancel()
	ours, theirs := net.Pipe()
	accepted, dialled := &limited{Conn: theirs}, &limited{Conn: ours}
	if !p.addStranger(accepted) {
		t.Fatal("closed")
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		p.receive(accepted)
	}()
	c, err := present(dialled, []net.Conn{dialled}, ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Wait(within(t))
	if err != nil {
		t.Fatal(err)
	}
	<-received
	if !accepted.until.IsZero() || !dialled.until.IsZero() {
		t.Errorf("limits are left at %v and %v", accepted.until, dialled.until)
	}
	if err := errors.Join(c.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// Close ends everything: calls of Wait, handshakes, connections of strangers, and calls of Dial.
func TestClose(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	ticket := NewTicket()
	waits := []*Wait{p.Expect(NewTicket(), nil), p.Expect(ticket, nil)}
	got := make(chan error)
	for _, w := range waits {
		go func() {
			_, err := w.Wait(within(t))
			got <- err
		}()
	}
	socks := sockets(t, target(t, p, "tcp"), 2)
	if _, err := socks[0].Write(append(ticket.Number[:], 1)); err != nil {
		t.Fatal(err)
	}
	p.until(t, "both there", func() bool { return len(p.greeted) == 1 && len(p.remote.socks) == 1 })
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	for range waits {
		if err := <-got; err == nil {
			t.Error("waited with success")
		}
	}
	for _, w := range waits {
		w.Cancel()
	}
	for _, s := range socks {
		ended(t, s)
	}
	if _, err := net.Dial("tcp", target(t, p, "tcp").Addr); err == nil {
		t.Error("it still listens")
	}
	late := p.Expect(NewTicket(), nil)
	defer late.Cancel()
	if _, err := late.Wait(within(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed port: %v", err)
	}
}

func TestOpenRefused(t *testing.T) {
	keepsFiles(t)
	p, err := Open(Config{IPs: []netip.Addr{loopback(), netip.MustParseAddr("192.0.2.1")}, ID: rand.Text()})
	if err == nil {
		t.Errorf("listens at an address of no interface: %v", p.Close())
	}
}

// The offer of a port has its addresses and the given ticket.
func TestPortOffers(t *testing.T) {
	p := opened(t)
	ticket := NewTicket()
	o := p.Offer(ticket)
	if o.Ticket != ticket || len(o.Addrs) != 1 || o.Addrs[0].Addr() != loopback() || p.offer.Ticket != (Ticket{}) {
		t.Errorf("%+v", o)
	}
	if q := opened(t); o.KernelID != q.offer.KernelID {
		t.Error("two ports of a process have different kernel IDs")
	}
	if (p.id == "") != (o.KernelID == [32]byte{}) {
		t.Errorf("kernel ID %x with the socket %q", o.KernelID, p.id)
	}
	lone, err := Open(Config{IPs: []netip.Addr{loopback()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := lone.Close(); err != nil || lone.offer.KernelID != [32]byte{} {
		t.Errorf("%+v without Unix sockets, %v", lone.offer, err)
	}
}
