package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
)

// piped is a stream in memory, for tests in virtual time.
type piped struct{ net.Conn }

func (p piped) Reset() error      { return p.Close() }
func (p piped) CloseWrite() error { return p.Close() }
func (p piped) Peer() elastic.ID  { return "b" }
func (p piped) Path() event.Path  { return event.Path{} }

// pipedPair returns the transport of rank 0 of two, and rank 1's ends of the streams of the pair.
func pipedPair() (*Transport, [streamsPerPair]net.Conn) {
	var near, far [streamsPerPair]net.Conn
	for i := range far {
		near[i], far[i] = net.Pipe()
	}
	return begunWith(piped{near[dataStream]}, piped{near[urgentStream]}), far
}

// begunWith returns the transport of rank 0 of two over these streams.
func begunWith(data, urgent Stream) *Transport {
	v := elastic.View{Members: []elastic.Member{{ID: "a"}, {ID: "b"}}}
	a := newAttempt(context.Background(), newTestBinder(), v, 0, nil)
	put(a, 1, dataStream, data)
	put(a, 1, urgentStream, urgent)
	return newTransport(a, nil)
}

// newTestBinder returns the binder of a process without a network.
func newTestBinder() *binder {
	life := newLifetime()
	return &binder{cfg: new(Config), life: life, views: newViewTable("", life), lanes: newLanes()}
}

// put gives an attempt a stream with another rank, and starts to read it until the view is over.
func put(a *attempt, rank, number int, s Stream) {
	l := newLane(s, a.view.Members[rank].ID, number)
	a.put(rank, linkOver(l, wire.Greeting{}))
	go l.readView(a)
}

// lateWord is an action of the other side on its urgent stream after the data stream broke, with
// the times of the action and of the error that this side reports.
type lateWord struct {
	act        func(urgent net.Conn) error
	acts, told time.Duration
	want       string
	blames     bool // the error names the other rank
}

// After the data stream broke, the urgent stream may bring the cause within causeTime. A peer that
// is stopped or cut off keeps the urgent stream open and sends nothing. It is lost after causeTime.
func TestLossCause(t *testing.T) {
	cause := transport.EncodeCause(1, errors.New("it was the third"))
	revoke := func(c net.Conn) error {
		_, err := c.Write(frame(wire.Header{Kind: wire.Revoke, Length: uint64(len(cause))}, string(cause)))
		return err
	}
	nothing := func(net.Conn) error { return nil }
	for name, w := range map[string]lateWord{
		"silent":        {nothing, time.Second, causeTime, "connection closed", true},
		"ends":          {net.Conn.Close, time.Second, time.Second, "connection closed", true},
		"tells at last": {revoke, causeTime - 1, causeTime - 1, "it was the third", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { w.check(t) })
		})
	}
}

func (l lateWord) check(t *testing.T) {
	e, far := pipedPair()
	begun := time.Now()
	if err := far[dataStream].Close(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(l.acts, func() {
		if err := l.act(far[urgentStream]); err != nil {
			t.Error(err)
		}
	})
	err := e.Recv(t.Context(), 1, transport.Envelope{}, nil)
	var lost *transport.PeerError
	if blames := errors.As(err, &lost) && lost.Rank == 1; blames != l.blames || !strings.Contains(fmt.Sprint(err), l.want) {
		t.Errorf("got %v, want %q", err, l.want)
	}
	if took := time.Since(begun); took != l.told {
		t.Errorf("it took %v, want %v", took, l.told)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// While a message is being written others wait. The message of the highest priority is written next, though
// it was sent last. A signal waits its turn among the messages of ordinary priority.
func TestUrgentGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, far := pipedPair()
		sent := make(chan error)
		sends := 0
		send := func(name string, priority int32) {
			sends++
			go func() { sent <- e.Send(t.Context(), 1, transport.Envelope{Priority: priority}, []byte(name)) }()
			synctest.Wait() // until the send has its place in the queue
		}
		signal := func(name string) {
			e.Signal(1, []byte(name))
			synctest.Wait()
		}
		send("a, of which nobody reads", 0)
		send("b", 0)
		send("c", 1)
		signal("d")
		send("e", -1)
		send("f", 1)
		send("g", 0)
		signal("h")
		send("i", 2)
		for _, want := range []string{"a, of which nobody reads", "i", "c", "f", "b", "d", "g", "h", "e"} {
			if got := nextFrame(t, far[dataStream]); got != want {
				t.Errorf("%q came, want %q", got, want)
			}
		}
		for range sends {
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(far[dataStream].Close(), far[urgentStream].Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
}

// nextFrame reads a frame and returns its payload.
func nextFrame(t *testing.T, c net.Conn) string {
	t.Helper()
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	h, err := wire.DecodeHeader(&head)
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(c, payload); err != nil {
		t.Fatal(err)
	}
	return string(payload)
}

// A Send that is cancelled, while it waits or when its turn has just come, blocks no other Send.
func TestSendGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, far := pipedPair()
		p := e.pairs[1].Load()
		first, err := p.takeTurn(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gave := make(chan error)
		go func() {
			_, err := p.takeTurn(ctx, 1)
			gave <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gave; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		p.data.writers.release(first)
		e.Revoke(errors.New("enough"))
		for range 20 { // as select takes any of the cases that are ready
			if _, err := p.takeTurn(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "enough") {
				t.Errorf("revoked: %v", err)
			}
		}
		<-p.data.writers.enqueue(0).turn
		if err := errors.Join(far[dataStream].Close(), far[urgentStream].Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
}

// dataHeader returns the header of a message of n bytes.
func dataHeader(n int) wire.Header { return wire.Header{Kind: wire.Data, Length: uint64(n)} }
