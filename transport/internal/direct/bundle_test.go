package direct

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStripes(t *testing.T) {
	for trip, want := range map[time.Duration]int{
		0: 1, 300 * time.Microsecond: 1, 9 * time.Millisecond: 1, 16 * time.Millisecond: 2, 50 * time.Millisecond: 6,
		100 * time.Millisecond: 11, time.Second: maxStripes, time.Hour: maxStripes,
	} {
		if got := stripes(trip); got != want {
			t.Errorf("round trip of %v: %d connections, want %d", trip, got, want)
		}
	}
}

// Bytes that are written in arbitrary pieces are read in order, and each connection carries its own stripes.
func TestBundleIsOneStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, maxStripes).Draw(t, "connections")
		sizes := rapid.SliceOfN(rapid.IntRange(0, 2*stripeSize), 1, 6).Draw(t, "writes")
		buffer := rapid.IntRange(500, 2*stripeSize).Draw(t, "buffer")
		ours, theirs := make([]net.Conn, n), make([]net.Conn, n)
		counts := make([]counted, n)
		for i := range n {
			ours[i], theirs[i] = net.Pipe()
			counts[i].Conn = ours[i]
			ours[i] = &counts[i]
		}
		from, to := newBundle(ours), newBundle(theirs)
		total := 0
		for _, s := range sizes {
			total += s
		}
		sent := make([]byte, total)
		_, _ = rand.Read(sent) // never fails
		failed := make(chan error, 1)
		go func() {
			failed <- errors.Join(writeAll(from, sent, sizes), from.Close())
		}()
		var got bytes.Buffer
		_, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{to}, make([]byte, buffer))
		if err := errors.Join(err, <-failed, to.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d bytes came out of %d, or others", got.Len(), total)
		}
		for i := range counts {
			if most := (total/n/stripeSize + 1) * stripeSize; counts[i].bytes > most {
				t.Fatalf("connection %d of %d has had %d bytes of %d", i, n, counts[i].bytes, total)
			}
		}
	})
}

// counted counts the bytes written.
type counted struct {
	net.Conn
	bytes int
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes += n
	return n, err
}

// writeAll writes b in pieces.
func writeAll(w io.Writer, b []byte, sizes []int) error {
	for _, s := range sizes {
		if n, err := w.Write(b[:s]); err != nil || n != s {
			return fmt.Errorf("wrote %d of %d: %w", n, s, err)
		}
		b = b[s:]
	}
	return nil
}

// Several connections with one ticket form one Conn, whatever the order of their arrival.
func TestSeveralConnections(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	for _, n := range []int{2, 3, maxStripes} {
		ticket := NewTicket()
		w := p.Expect(ticket, nil)
		socks := sockets(t, target(t, p, "tcp"), n)
		slices.Reverse(socks) // the connections that were accepted last send their numbers first
		ours, err := present(newBundle(socks), socks, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := w.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		w.Cancel() // no effect after the Conn was returned
		want := make([]byte, 5*stripeSize+100)
		_, _ = rand.Read(want) // never fails
		wrote := make(chan error, 1)
		go func() { wrote <- ours.WriteTwo(want[:47], want[47:]) }()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d connections: other bytes came, %v", n, err)
		}
		if err := errors.Join(<-wrote, ours.Reset()); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Read(got); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("after a reset: %v", err)
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.expected) > 0 || len(p.greeted) > 0 {
		t.Errorf("%d numbers and %d connections are left", len(p.expected), len(p.greeted))
	}
}

// If one connection does not arrive, Wait keeps the others until it is cancelled.
func TestOneOfSeveralIsMissing(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	ticket := NewTicket()
	w := p.Expect(ticket, nil)
	socks := sockets(t, target(t, p, "tcp"), 2)
	for i, s := range socks {
		number := ticket.number(i)
		if _, err := s.Write(append(number[:], 3)); err != nil {
			t.Fatal(err)
		}
	}
	p.until(t, "recognised", func() bool { return len(p.greeted) == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the end of the context", err)
	}
	w.Cancel()
	for _, s := range socks {
		ended(t, s)
	}
	if len(p.expected) > 0 || len(p.greeted) > 0 {
		t.Errorf("%d numbers and %d connections are left", len(p.expected), len(p.greeted))
	}
}

// Connections that do not belong together are refused.
func TestNumbersThatDoNotFit(t *testing.T) {
	for name, heads := range map[string][][2]int{ // index and count of each connection
		"none":         {{0, 0}},
		"too many":     {{0, maxStripes + 1}},
		"not of those": {{2, 2}},
		"other count":  {{0, 2}, {1, 3}},
		"twice":        {{0, 2}, {0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			p := opened(t)
			ticket := NewTicket()
			defer p.Expect(ticket, nil).Cancel()
			socks := sockets(t, target(t, p, "tcp"), len(heads))
			for i, h := range heads {
				number := ticket.number(h[0])
				if _, err := socks[i].Write(append(number[:], byte(h[1]))); err != nil {
					t.Fatal(err)
				}
				if i < len(heads)-1 {
					p.until(t, "recognised", func() bool { return len(p.greeted) == i+1 })
				}
			}
			ended(t, socks[len(heads)-1])
		})
	}
}
