package mesh

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

// entering returns an attempt of rank 0 of three that has the urgent streams with the others, and the other
// ends of these streams, by rank.
func entering(t *testing.T) (a *attempt, far [3]net.Conn) {
	v := elastic.View{Epoch: 7, Members: []elastic.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}}
	a = newAttempt(t.Context(), newTestBinder(), v, 0, nil)
	for rank := 1; rank < 3; rank++ {
		var near net.Conn
		near, far[rank] = net.Pipe()
		put(a, rank, urgentStream, piped{near})
	}
	return a, far
}

// revoke writes a Revoke frame, with rank 1 as the rank that revoked the view.
func revoke(t *testing.T, c net.Conn) {
	t.Helper()
	cause := transport.EncodeCause(1, errors.New("enough"))
	if _, err := c.Write(wire.AppendFrame(nil, wire.Revoke, cause)); err != nil {
		t.Error(err)
	}
}

// A rank that still waits for streams of a view handles a revocation: it ends its attempt, and passes the
// revocation on to the ranks whose streams it has.
func TestRevokedWhileEntering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, far := entering(t)
		begun := time.Now()
		told := make(chan []byte)
		go func() {
			_, cause, err := wire.ReadFrame(far[2], wire.Revoke)
			if err != nil {
				t.Error(err)
			}
			told <- cause
		}()
		revoke(t, far[1])
		go func() { // rank 1 gets a revocation, too
			_, _, _ = wire.ReadFrame(far[1], wire.Revoke)
		}()
		cause := transport.DecodeCause(2, <-told)
		<-a.done
		for _, err := range []error{a.err, cause} {
			var abort *transport.AbortError
			if !errors.As(err, &abort) || abort.Rank != 1 || abort.Cause != "enough" {
				t.Errorf("got %v, want what rank 1 said", err)
			}
		}
		if took := time.Since(begun); took != revokedTime {
			t.Errorf("it took %v, want %v", took, revokedTime)
		}
	})
}

// Streams that come soon after a revocation still complete the attempt, and the view is revoked
// after that: no rank is blamed for the end of a stream.
func TestRevokedAndComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, far := entering(t)
		revoke(t, far[1])
		synctest.Wait()
		for rank := 1; rank < 3; rank++ {
			near, other := net.Pipe()
			defer other.Close()
			put(a, rank, dataStream, piped{near})
		}
		<-a.done
		if a.err != nil {
			t.Fatal(a.err)
		}
		e := newTransport(a, nil)
		var abort *transport.AbortError
		if err := e.Recv(t.Context(), 2, transport.Envelope{}, nil); !errors.As(err, &abort) || abort.Rank != 1 {
			t.Errorf("got %v, want what rank 1 said", err)
		}
		for _, c := range far[1:] {
			_ = c.Close() // the transport reads nothing more from it
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The streams of a peer for two views may wait; a further stream replaces the oldest of the peer.
func TestParked(t *testing.T) {
	v := newViewTable("", newLifetime())
	var all []*parkedStream
	for i := range maxParked + 2 {
		p := &parkedStream{peer: "a", lineage: [32]byte{byte(i)}, claimed: make(chan *attempt, 1)}
		if i == 0 {
			p.peer = "b"
		}
		all = append(all, p)
		v.parkLocked(p)
	}
	for i, p := range all {
		if gone := len(p.claimed) > 0; gone != (i == 1) {
			t.Errorf("stream %d has to go: %v", i, gone)
		}
	}
	if len(v.parked) != maxParked+1 {
		t.Errorf("%d are parked", len(v.parked))
	}
}
