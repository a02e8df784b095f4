package direct

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A waiter accepts measurements up to the limit. After that it gets its connection.
func TestMeasure(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	to, ticket := target(t, p, "tcp"), NewTicket()
	w := p.Expect(ticket, nil)
	defer w.Cancel()
	for range maxMeasurements {
		s, err := measureIn(within(t), to, ticket, new(sync.Mutex))
		if err != nil {
			t.Fatal(err)
		}
		if s.Rate <= 0 || s.RoundTrip <= 0 || s.Time(1<<20) < s.RoundTrip/2 {
			t.Fatalf("measured %+v", s)
		}
	}
	if _, err := measureIn(within(t), to, ticket, new(sync.Mutex)); err == nil {
		t.Error("measured more often than the bound")
	}
	a, err := Dial(within(t), to, ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.Wait(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(exchange(a, b), a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// Only the holder of a ticket can measure, and only while the waiter expects it.
func TestMeasureNeedsTicket(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	to, ticket := target(t, p, "tcp"), NewTicket()
	w := p.Expect(ticket, nil)
	other := ticket
	other.Key[0]++
	if _, err := measureIn(within(t), to, other, new(sync.Mutex)); err == nil {
		t.Error("measured with another key")
	}
	w.Cancel()
	if _, err := measureIn(within(t), to, ticket, new(sync.Mutex)); err == nil {
		t.Error("measured after Cancel")
	}
}

// FuzzMeasured checks that a waiter, for any input, answers only complete rounds within the limits, and then ends.
func FuzzMeasured(f *testing.F) {
	one := binary.LittleEndian.AppendUint32(nil, 3)
	f.Add(append(one, "abc"...))
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Add(bytes.Repeat([]byte{0, 0, 0, 0}, 100))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		ticket := NewTicket()
		ended := make(chan error, 1)
		go func() {
			ended <- serveMeasurement(far, &ticket)
			_ = far.Close()
		}()
		go func() {
			_, _ = near.Write(said) // fails if the waiter has ended before
			_ = near.SetReadDeadline(time.Now())
		}()
		answers, _ := io.ReadAll(near)
		_ = near.Close()
		if err := <-ended; err == nil {
			t.Error("ended without a cause")
		}
		if len(answers) > 0 && !bytes.HasPrefix(answers, ticket.proof(measureLabel)[:min(len(answers), proofSize)]) {
			t.Error("the first answer is no proof")
		}
		if most := proofSize + len(said)/4; len(answers) > most {
			t.Errorf("%d bytes answer %d", len(answers), len(said))
		}
	})
}
