package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

const hang = 4 * time.Minute

// trio starts three hosts that know each other: ranks 0 and 1 of the view are decent,
// rank 2 is the one that misbehaves, as an authenticated member.
func trio(t testing.TB, path string) ([]*Host, elastic.View) {
	t.Helper()
	var hs []*Host
	v := elastic.View{Epoch: 1}
	for i := range 3 {
		h, err := Listen(t.Context(), Config{Job: "test", Path: path, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		hs = append(hs, h)
		v.Members = append(v.Members, elastic.Member{ID: h.ID(), Index: i, Addrs: h.Addrs()})
	}
	for _, h := range hs {
		if err := h.Introduce(v.Members); err != nil {
			t.Fatal(err)
		}
	}
	return hs, v
}

// enter lets ranks 0 and 1 connect while f plays rank 2.
func enter(t testing.TB, hs []*Host, v elastic.View, f func()) (*Transport, *Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	var ts [2]*Transport
	var errs [2]error
	done := make(chan int)
	for rank := range 2 {
		go func() {
			ts[rank], errs[rank] = hs[rank].connect(ctx, v, rank)
			done <- rank
		}()
	}
	f()
	<-done
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return ts[0], ts[1]
}

// impostor opens the streams of rank 2 to the two others, in good order so far.
func impostor(t testing.TB, hs []*Host, v elastic.View) (streams [2][streamsPerPair]link) {
	t.Helper()
	a := newAttempt(t.Context(), v, 2)
	for rank := range 2 {
		id, err := idOf(string(hs[rank].ID()))
		if err != nil {
			t.Fatal(err)
		}
		for number := range streamsPerPair {
			s, err := hs[2].join(t.Context(), id, a, rank, number)
			if err != nil {
				t.Fatal(err)
			}
			streams[rank][number] = s
		}
	}
	return streams
}

// hangUp ends the impostor's streams, so that nobody waits for its answers.
func hangUp(streams [2][streamsPerPair]link) {
	for _, pair := range streams {
		for _, s := range pair {
			_ = s.Reset()
		}
	}
}

// endWriting ends what the other side reads.
func endWriting(l link) error {
	if s, ok := l.line.(network.Stream); ok {
		return s.CloseWrite()
	}
	return l.Close()
}

// frame returns an encoded header, and payload.
func frame(h wire.Header, payload string) []byte {
	var b [wire.HeaderSize]byte
	h.Encode(&b)
	return append(b[:], payload...)
}

// malformed is what rank 2 writes on one of its streams to rank 0, whether it hangs up then,
// and what the others must say.
type malformed struct {
	stream int
	bytes  []byte
	hangUp bool
	want   string
}

// What an authenticated member sends out of order ends the epoch at all ranks, with
// an error that names it.
func TestMalformedFrames(t *testing.T) {
	huge := frame(wire.Header{Kind: wire.Data}, "")
	binary.LittleEndian.PutUint64(huge[16:], math.MaxUint64)
	tests := map[string]malformed{
		"garbage":                {dataStream, []byte(strings.Repeat("garbage!", 100)), false, "broke the protocol"},
		"huge length":            {dataStream, huge, false, "broke the protocol"},
		"length above the limit": {dataStream, frame(wire.Header{Kind: wire.Data, Length: wire.MaxData + 1}, ""), false, "broke the protocol"},
		"hello again":            {dataStream, frame(wire.Header{Kind: wire.Hello}, ""), false, "broke the protocol"},
		"revocation among data":  {dataStream, frame(wire.Header{Kind: wire.Revoke}, ""), false, "broke the protocol"},
		"half a header":          {dataStream, []byte{'e', 'l'}, true, "connection closed"},
		"half a message":         {dataStream, frame(wire.Header{Kind: wire.Data, Length: 9}, "half"), true, "connection closed"},
		"half a signal":          {dataStream, frame(wire.Header{Kind: wire.Signal, Length: 9}, "half"), true, "connection closed"},
		"no bye":                 {dataStream, nil, true, "connection closed"},
		"urgent data":            {urgentStream, frame(wire.Header{Kind: wire.Data}, ""), false, "broke the protocol"},
	}
	for _, path := range []string{"p2p", "direct", "unix"} {
		for name, test := range tests {
			t.Run(path+"/"+name, func(t *testing.T) { misbehave(t, path, test) })
		}
	}
}

// misbehave lets rank 2 write what it must not.
func misbehave(t *testing.T, path string, m malformed) {
	hs, v := trio(t, path)
	var streams [2][streamsPerPair]link
	t0, t1 := enter(t, hs, v, func() { streams = impostor(t, hs, v) })
	s := streams[0]
	if _, err := s[m.stream].Write(m.bytes); err != nil {
		t.Fatal(err)
	}
	if m.hangUp {
		for _, l := range s {
			if err := endWriting(l); err != nil {
				t.Error(err)
			}
		}
	}
	for _, e := range []*Transport{t0, t1} {
		err := e.Recv(t.Context(), 1-e.self, transport.Envelope{Seq: 1}, nil)
		var lost *transport.PeerError
		if !errors.As(err, &lost) || lost.Rank != 2 || !strings.Contains(lost.Cause, m.want) {
			t.Errorf("rank %d: %v, want the loss of rank 2: %s", e.self, err, m.want)
		}
	}
	hangUp(streams)
	if err := errors.Join(t0.Close(), t1.Close()); err != nil {
		t.Error(err)
	}
	stillThere(t, hs, v)
}

// Half a revocation blames nobody by itself: the data stream decides.
func TestHalfRevocation(t *testing.T) {
	hs, v := trio(t, "p2p")
	var streams [2][streamsPerPair]link
	t0, t1 := enter(t, hs, v, func() { streams = impostor(t, hs, v) })
	for _, pair := range streams {
		if _, err := pair[urgentStream].Write(frame(wire.Header{Kind: wire.Revoke, Length: 100}, "half")); err != nil {
			t.Fatal(err)
		}
		_ = pair[urgentStream].Reset()
	}
	sent := make(chan error, 1)
	go func() { sent <- t0.Send(t.Context(), 1, transport.Envelope{}, []byte("x")) }()
	if err := errors.Join(t1.Recv(t.Context(), 0, transport.Envelope{}, make([]byte, 1)), <-sent); err != nil {
		t.Error(err)
	}
	_ = streams[0][dataStream].Reset()
	var lost *transport.PeerError
	if err := t0.Recv(t.Context(), 1, transport.Envelope{}, nil); !errors.As(err, &lost) || lost.Rank != 2 {
		t.Errorf("got %v", err)
	}
	_ = streams[1][dataStream].Reset()
	if err := errors.Join(t0.Close(), t1.Close()); err != nil {
		t.Error(err)
	}
}

// stillThere connects ranks 0 and 1 in a view of their own.
func stillThere(t testing.TB, hs []*Host, v elastic.View) {
	t.Helper()
	next := elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash(), Members: v.Members[:2]}
	t0, t1 := enter(t, hs, next, func() {})
	sent := make(chan error, 1)
	go func() { sent <- t0.Send(t.Context(), 1, transport.Envelope{}, []byte("x")) }()
	if err := errors.Join(t1.Recv(t.Context(), 0, transport.Envelope{}, make([]byte, 1)), <-sent); err != nil {
		t.Error(err)
	}
	if err := errors.Join(t0.Close(), t1.Close()); err != nil {
		t.Error(err)
	}
}

// Bytes on a fresh data stream that are no good hello end that stream only.
func TestMalformedHello(t *testing.T) {
	hs, v := trio(t, "p2p")
	a := newAttempt(t.Context(), v, 2)
	as := func(change func(*wire.Greeting)) []byte {
		g := hs[2].greeting(a, dataStream)
		change(&g)
		body, err := g.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return frame(wire.Header{Kind: wire.Hello, Length: uint64(len(body))}, string(body))
	}
	hellos := map[string][]byte{
		"garbage":       []byte(strings.Repeat("garbage!", 100)),
		"another kind":  frame(wire.Header{Kind: wire.Bye}, ""),
		"too short":     frame(wire.Header{Kind: wire.Hello, Length: 3}, "abc"),
		"too long":      frame(wire.Header{Kind: wire.Hello, Length: math.MaxUint64}, ""),
		"job":           as(func(g *wire.Greeting) { g.Job = "another" }),
		"rank of 1":     as(func(g *wire.Greeting) { g.Rank = 1 }),
		"rank of 0":     as(func(g *wire.Greeting) { g.Rank = 0 }),
		"no rank":       as(func(g *wire.Greeting) { g.Rank = math.MaxUint32 }),
		"no stream":     as(func(g *wire.Greeting) { g.Stream = streamsPerPair }),
		"other epoch":   as(func(g *wire.Greeting) { g.Epoch = 0 }),
		"other lineage": as(func(g *wire.Greeting) { g.Lineage[0]++ }),
	}
	var streams [2][streamsPerPair]link
	t0, t1 := enter(t, hs, v, func() {
		// Rank 2 comes in good order only after all the attempts.
		for name, bytes := range hellos {
			id, err := idOf(string(hs[0].ID()))
			if err != nil {
				t.Fatal(err)
			}
			s, err := hs[2].host.NewStream(t.Context(), id, dataProtocol)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(bytes); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// Which of them rank 0 has seen before it entered is left open: then it parks
			// the plausible ones, and they end when it does enter.
			if name != "other lineage" && name != "other epoch" {
				if _, err := readHello(s); err == nil {
					t.Errorf("%s: answered", name)
				}
			}
			_ = s.Reset()
		}
		streams = impostor(t, hs, v)
	})
	hangUp(streams)
	if err := errors.Join(t0.Close(), t1.Close()); err != nil {
		t.Error(err)
	}
}

// A control message whose length is above the limit ends its stream, not the host.
func TestMalformedControl(t *testing.T) {
	hs, v := trio(t, "p2p")
	id, err := idOf(string(hs[0].ID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []string{"\xff\xff\xff\xff", "\x09\x00\x00\x00half", "\x01"} {
		s, err := hs[2].host.NewStream(t.Context(), id, controlProtocol)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte(bytes)); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []elastic.PeerEventKind{elastic.PeerUp, elastic.PeerDown} {
			if e := <-hs[0].Events(); e.Kind != want || e.Peer != hs[2].ID() {
				t.Errorf("event %v, want %v", e, want)
			}
		}
		_ = s.Reset()
	}
	stillThere(t, hs, v)
}

// Strangers that never get through the handshake cost nothing but their connection.
func TestGarbageFromStrangers(t *testing.T) {
	hs, v := trio(t, "p2p")
	addr, err := manet.ToNetAddr(hs[0].host.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 1<<16),
		"\x13/multistream/1.0.0\n",                     // and no more
		"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n",     // and no handshake
		"\x13/multistream/1.0.0\n\x07/noise\n\x00\x00", // an empty handshake message
		"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n\x16\x03\x01\xff\xff" + strings.Repeat("x", 5000),
	} {
		for range 3 {
			c, err := net.Dial(addr.Network(), addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() // open until the end of the test: half of a handshake
			if _, err := io.WriteString(c, bytes); err != nil {
				t.Logf("write: %v", err) // the host may hang up early
			}
		}
	}
	stillThere(t, hs, v)
}

// The sizes that this package relies on.
func TestWireFits(t *testing.T) {
	if got := wire.MaxPayload(wire.Signal); got != transport.MaxSignal {
		t.Errorf("signals of %d bytes, the transport allows %d", got, transport.MaxSignal)
	}
	if got := wire.MaxPayload(wire.Revoke); got != transport.MaxSignal {
		t.Errorf("causes of %d bytes, want %d", got, transport.MaxSignal)
	}
	if got := wire.MaxPayload(wire.Probe); got != transport.MaxProbe {
		t.Errorf("probes of %d bytes, want %d", got, transport.MaxProbe)
	}
	if wire.CallSize != transport.CallSize {
		t.Errorf("calls of %d bytes, the collectives have %d", wire.CallSize, transport.CallSize)
	}
}
