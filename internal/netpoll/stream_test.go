package netpoll

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// socketPair returns the two ends of a connection. They are closed at the end of the test.
func socketPair(tb testing.TB, network string) (a, b net.Conn) {
	tb.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(tb.TempDir(), "sock")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = a.Close() }) // the test may have closed it
	if b, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return a, b
}

// hidden is a connection that hides the methods that the poller needs.
type hidden struct{ io.ReadWriter }

// Bytes arrive as they were written, in pieces of any length, in both directions at once. This also holds for a connection that a
// Stream cannot poll.
func TestStreamCarriesAll(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "hidden tcp"} {
		t.Run(network, func(t *testing.T) {
			a, b := socketPair(t, strings.TrimPrefix(network, "hidden "))
			ends := [2]*Stream{NewStream(a, true), NewStream(b, false)}
			if strings.HasPrefix(network, "hidden ") {
				ends[0] = NewStream(hidden{a}, true)
			}
			rapid.Check(t, func(t *rapid.T) {
				done := make(chan error, 4)
				for i := range ends {
					heads, bodies := drawParts(t), drawParts(t)
					go func() { done <- writeAll(ends[i], heads, bodies) }()
					go func() { done <- readAll(ends[1-i], heads, bodies) }()
				}
				for range cap(done) {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// parts are four pieces of data.
type parts [4][]byte

// drawParts draws pieces of different lengths. Some are close to maxTransfer.
func drawParts(t *rapid.T) (p parts) {
	size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(maxTransfer-50, maxTransfer+50), rapid.IntRange(0, 3*maxTransfer))
	for i := range p {
		p[i] = bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, size.Draw(t, "size"))
	}
	return p
}

// writeAll writes each head and body, alternately with one WriteTwo and with two Writes.
func writeAll(s *Stream, heads, bodies parts) error {
	for i, head := range heads {
		if i%2 == 0 {
			if err := s.WriteTwo(head, bodies[i]); err != nil {
				return err
			}
			continue
		}
		for _, b := range [][]byte{head, bodies[i]} {
			if n, err := s.Write(b); n != len(b) || err != nil {
				return fmt.Errorf("%d of %d were written: %w", n, len(b), err)
			}
		}
	}
	return nil
}

// readAll reads the pieces and compares them.
func readAll(s *Stream, heads, bodies parts) error {
	for i, head := range heads {
		want := append(bytes.Clone(head), bodies[i]...)
		got := make([]byte, len(want))
		if n, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes came as %d others: %w", len(want), n, err)
		}
	}
	return nil
}

// A Stream returns the errors of its connection: io.EOF after the last byte, and errors for a deadline, a closed connection and a
// closed reader.
func TestStreamEnds(t *testing.T) {
	a, b := socketPair(t, "unix")
	s, other := NewStream(a, true), NewStream(b, true)
	one := make([]byte, 1)
	if n, err := s.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing was asked for: %d, %v", n, err)
	}
	if err := a.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline: %v", err)
	}
	if n, err := s.Write(one); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d written after the deadline: %v", n, err)
	}
	if err := errors.Join(a.SetDeadline(time.Time{}), other.WriteTwo([]byte("x"), nil), b.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(one); n != 1 || err != nil || one[0] != 'x' {
		t.Errorf("the last byte is %q: %d, %v", one, n, err)
	}
	if n, err := s.Read(one); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	var failed *net.OpError
	if err := s.WriteTwo(one, one); !errors.Is(err, syscall.EPIPE) || !errors.As(err, &failed) || failed.Addr.String() != a.RemoteAddr().String() {
		t.Errorf("write without a reader: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(one); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if _, err := s.Write(one); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written after Close: %v", err)
	}
}

// Sending and receiving a message allocates no memory.
func TestStreamAllocatesNothing(t *testing.T) {
	a, b := socketPair(t, "unix")
	s, other := NewStream(a, true), NewStream(b, true)
	head, body := make([]byte, 64), make([]byte, 1024)
	got := make([]byte, len(head)+len(body))
	allocs := testing.AllocsPerRun(100, func() {
		if err := s.WriteTwo(head, body); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(other, got); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations a message", allocs)
	}
}
