package direct

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/internal/race"
)

// Bytes that are written in arbitrary pieces, in both directions at once, are read unchanged.
func TestConnIsOneStream(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			a, b := connected(t, opened(t), w)
			rapid.Check(t, func(t *rapid.T) {
				done := make(chan error, 2)
				for _, ends := range [][2]*Conn{{a, b}, {b, a}} {
					pieces := drawPieces(t)
					go func() { done <- writePieces(ends[0], pieces) }()
					go func() { done <- readPieces(ends[1], pieces) }()
				}
				for range 4 {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// pieces are frames, each with a head and a body.
type pieces [][2][]byte

func drawPieces(t *rapid.T) pieces {
	var all pieces
	size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(recordSize-70, recordSize+70), rapid.IntRange(0, 2*batchSize))
	for range rapid.IntRange(0, 4).Draw(t, "frames") {
		head, body := make([]byte, rapid.OneOf(rapid.Just(64), size).Draw(t, "head")), make([]byte, size.Draw(t, "body"))
		_, _ = rand.Read(head) // never fails
		_, _ = rand.Read(body)
		all = append(all, [2][]byte{head, body})
	}
	return all
}

// writePieces writes each frame by one WriteTwo, or by two Writes.
func writePieces(c *Conn, all pieces) error {
	for i, p := range all {
		if i%3 == 2 {
			if _, err := c.Write(p[0]); err != nil {
				return err
			}
			if _, err := c.Write(p[1]); err != nil {
				return err
			}
			continue
		}
		head, body := bytes.Clone(p[0]), bytes.Clone(p[1])
		if err := c.WriteTwo(head, body); err != nil {
			return err
		}
		if !bytes.Equal(head, p[0]) || !bytes.Equal(body, p[1]) {
			return errors.New("what was written has changed")
		}
	}
	return nil
}

func readPieces(c *Conn, all pieces) error {
	for i, p := range all {
		want := append(bytes.Clone(p[0]), p[1]...)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("frame %d of %d bytes is another one: %w", i, len(want), err)
		}
	}
	return nil
}

// After Close the other side can read everything that was written. After Reset it gets an error.
func TestCloseAndReset(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			p := opened(t)
			a, b := connected(t, p, w)
			text := bytes.Repeat([]byte("last words "), 1000)
			if err := errors.Join(a.WriteTwo(text[:100], text[100:]), a.Close()); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(b)
			if !bytes.Equal(got, text) || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes of %d came, %v", len(got), len(text), err)
			}
			a, b = connected(t, p, w)
			wrote := make(chan error, 1)
			go func() { // more than the buffers hold
				var err error
				for err == nil {
					err = a.WriteTwo(nil, make([]byte, 1<<20))
				}
				wrote <- err
			}()
			if _, err := b.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if err := b.Reset(); err != nil {
				t.Error(err)
			}
			if err := <-wrote; err == nil {
				t.Error("written after a reset")
			}
			if _, err := a.Read(make([]byte, 1)); err == nil {
				t.Error("read after a reset")
			}
		})
	}
}

// A deadline that passes ends a waiting call. A deadline that was removed does not.
func TestDeadlines(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, opened(t), w)
			if err := a.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			read := make(chan error, 1)
			go func() {
				_, err := a.Read(make([]byte, 1))
				read <- err
			}()
			if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("read: %v", err)
			}
			if err := a.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			if err := exchange(b, a); err != nil {
				t.Fatal(err)
			}
			if err := a.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			var err error
			for err == nil { // until the buffers are full
				err = a.WriteTwo([]byte("head"), make([]byte, 1<<20))
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("write: %v", err)
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Frames of any length are sent without a heap allocation. The test does not measure decryption,
// because crypto/tls allocates a few bytes for each record. Nor does it measure the check of the
// link, which allocates once per MiB.
func TestWriteAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, opened(t), w)
			a.queue.sent = math.MinInt
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{b.sock}, make([]byte, 64<<10))
			}()
			head, body := make([]byte, 64), make([]byte, 300<<10)
			n := testing.AllocsPerRun(50, func() {
				if err := errors.Join(a.WriteTwo(head, nil), a.WriteTwo(head, body)); err != nil {
					t.Error(err)
				}
			})
			if n >= 1 {
				t.Errorf("%v allocations", n)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			<-read
		})
	}
}
