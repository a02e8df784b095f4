package mem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// ends returns both ends of a stream.
func ends(t *testing.T) (a, b mesh.Stream) {
	t.Helper()
	w := &Network{members: make(map[elastic.ID]*Member)}
	carriers := [2]*carrier{}
	came := make(chan mesh.Stream, 1)
	for i, id := range []elastic.ID{"a", "b"} {
		carriers[i] = &carrier{network: w, id: id, open: make(map[*stream]bool), gone: make(chan struct{})}
		carriers[i].Handle(func(_ mesh.Kind, s mesh.Stream) { came <- s })
		w.members[id] = &Member{carrier: carriers[i]}
	}
	a, err := carriers[0].Open(context.Background(), "b", mesh.Bulk)
	if err != nil {
		t.Fatal(err)
	}
	return a, <-came
}

// Bytes are read as they were written, in pieces of any length. After the last byte a read returns
// io.EOF.
func TestPipe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPipe()
		var written, read []byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			room := pipeSize - (len(written) - len(read))
			if n := rapid.IntRange(0, pipeSize/2).Draw(t, "write"); n <= room {
				b := make([]byte, n)
				for i := range b {
					b[i] = byte((len(written) + i) * 7 / 3)
				}
				cut := rapid.IntRange(0, n).Draw(t, "cut")
				if m, err := p.write(b[:cut], b[cut:]); m != n || err != nil {
					t.Fatalf("wrote %d of %d, %v", m, n, err)
				}
				written = append(written, b...)
			}
			if len(written) > len(read) {
				b := make([]byte, rapid.IntRange(1, pipeSize).Draw(t, "read"))
				n, err := p.read(b)
				if n == 0 || err != nil {
					t.Fatalf("read %d, %v", n, err)
				}
				read = append(read, b[:n]...)
			}
		}
		p.close(io.EOF, nil)
		rest := make([]byte, pipeSize+1)
		for {
			n, err := p.read(rest)
			read = append(read, rest[:n]...)
			if err == io.EOF {
				break
			}
		}
		if !bytes.Equal(read, written) {
			t.Fatal("read something else than was written")
		}
	})
}

// A write that waits for room continues when there is room. A deadline ends the wait. A deadline
// that was removed does not.
func TestPipeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ends(t)
		wrote := make(chan error, 1)
		go func() {
			_, err := a.Write(make([]byte, 3*pipeSize))
			wrote <- err
		}()
		if _, err := io.ReadFull(b, make([]byte, 3*pipeSize)); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for _, at := range []time.Duration{time.Second, time.Hour, time.Minute} {
			_ = a.SetWriteDeadline(begun.Add(at))
			_ = b.SetReadDeadline(begun.Add(at))
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("read: %v after %v", err, time.Since(begun))
		}
		_ = a.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := a.Write(make([]byte, 3*pipeSize)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		_ = b.SetReadDeadline(time.Time{})
		if n, err := b.Read(make([]byte, 2)); n != 2 && err != nil {
			t.Errorf("read %d, %v, without a deadline", n, err)
		}
	})
}

// die ends a stream as if its member had left.
func die(s mesh.Stream) error {
	end := s.(*stream)
	end.ends[end.self].leave()
	return s.Reset()
}

// For each way to end a stream, the other end gets a different result.
func TestPipeEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end         func(mesh.Stream) error
		all         bool // everything that was written before can be read
		read, write error
	}{
		"close write": {mesh.Stream.CloseWrite, true, io.EOF, nil},
		"close":       {mesh.Stream.Close, true, io.EOF, errPipe},
		"reset":       {mesh.Stream.Reset, false, mesh.ErrReset, mesh.ErrReset},
		"death":       {die, true, mesh.ErrReset, mesh.ErrReset},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			if _, err := a.Write([]byte("last words")); err != nil {
				t.Fatal(err)
			}
			if err := test.end(a); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 10)
			if _, err := io.ReadFull(b, got); (err == nil) != test.all {
				t.Errorf("read %q, %v", got, err)
			}
			if _, err := b.Read(got); err != test.read {
				t.Errorf("read: %v, want %v", err, test.read)
			}
			if _, err := b.Write(got); err != test.write {
				t.Errorf("write: %v, want %v", err, test.write)
			}
			if _, err := a.Write(got); err == nil {
				t.Error("wrote after the end")
			}
		})
	}
}
