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

	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

const hang = 4 * time.Minute

// trio starts three hosts that know each other. Ranks 0 and 1 of the view are correct; rank 2
// misbehaves, as an authenticated member.
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

// connected is the result of Connect.
func connected(e transport.Transport, err error) (*mesh.Transport, error) {
	if err != nil {
		return nil, err
	}
	return e.(*mesh.Transport), nil
}

// lines are the streams of a pair: the data stream and the urgent one.
type lines [2]mesh.Stream

const (
	dataStream = iota
	urgentStream
)

// greeting returns the greeting of a rank of v.
func greeting(v elastic.View, rank int) wire.Greeting {
	return wire.Greeting{Job: "test", Epoch: v.Epoch, Lineage: v.Hash(), Rank: uint32(rank)}
}

// hello returns the Hello frame of a greeting.
func hello(t testing.TB, g wire.Greeting) []byte {
	t.Helper()
	body, err := g.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return wire.AppendFrame(nil, wire.Hello, body)
}

// readHello reads the answer to a hello.
func readHello(r io.Reader) error {
	_, _, err := wire.ReadFrame(r, wire.Hello)
	return err
}

// enter makes ranks 0 and 1 connect while f plays rank 2.
func enter(t testing.TB, hs []*Host, v elastic.View, f func()) (*mesh.Transport, *mesh.Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	var ts [2]*mesh.Transport
	var errs [2]error
	done := make(chan int)
	for rank := range 2 {
		go func() {
			ts[rank], errs[rank] = connected(hs[rank].Connect(ctx, v, rank))
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

// impostor opens the streams of rank 2 to the two others, with correct hellos.
func impostor(t testing.TB, hs []*Host, v elastic.View) (streams [2]lines) {
	t.Helper()
	for rank := range 2 {
		for i, k := range []mesh.Kind{mesh.Data, mesh.Urgent} {
			s, err := join(t, hs, v, rank, k)
			for errors.Is(err, mesh.ErrReset) { // rank 0 or 1 has let rank 2 in a little later
				s, err = join(t, hs, v, rank, k)
			}
			if err != nil {
				t.Fatal(err)
			}
			streams[rank][i] = s
		}
	}
	return streams
}

// join opens a stream from rank 2 to another rank and completes the upgrade.
func join(t testing.TB, hs []*Host, v elastic.View, rank int, k mesh.Kind) (mesh.Stream, error) {
	s, err := carrier{hs[2]}.Open(t.Context(), hs[rank].ID(), k)
	if err != nil {
		return nil, err
	}
	g := greeting(v, 2)
	g.Path, g.KernelID = uint8(hs[2].paths.path), hs[2].paths.offer(direct.Ticket{}).KernelID
	if _, err := s.Write(hello(t, g)); err != nil {
		return nil, err
	}
	if err := readHello(s); err != nil {
		return nil, err
	}
	if u, ok := s.(mesh.Upgrader); ok {
		return u.Upgrade(t.Context(), true)
	}
	return s, nil
}

// hangUp ends the impostor's streams, so that no rank waits for its answers.
func hangUp(streams [2]lines) {
	for _, pair := range streams {
		for _, s := range pair {
			_ = s.Reset()
		}
	}
}

// endWriting ends the bytes of this side.
func endWriting(s mesh.Stream) error {
	if _, ok := s.(mesh.TwoWriter); ok {
		return s.Close()
	}
	return s.CloseWrite()
}

// frame returns an encoded header and payload.
func frame(h wire.Header, payload string) []byte {
	var b [wire.HeaderSize]byte
	h.Encode(&b)
	return append(b[:], payload...)
}

// malformed is a case: the bytes that rank 2 writes on one of its streams to rank 0, whether rank 2
// then closes its streams, and the error that the other ranks must report.
type malformed struct {
	stream int
	bytes  []byte
	hangUp bool
	want   string
}

// A frame of an authenticated member that breaks the protocol ends the epoch at all ranks, with an
// error that names the member.
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

// misbehave makes rank 2 write the bytes of a case.
func misbehave(t *testing.T, path string, m malformed) {
	hs, v := trio(t, path)
	var streams [2]lines
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
	for rank, e := range []*mesh.Transport{t0, t1} {
		err := e.Recv(t.Context(), 1-rank, transport.Envelope{Seq: 1}, nil)
		var lost *transport.PeerError
		if !errors.As(err, &lost) || lost.Rank != 2 || !strings.Contains(lost.Cause, m.want) {
			t.Errorf("rank %d: %v, want the loss of rank 2: %s", rank, err, m.want)
		}
	}
	hangUp(streams)
	if err := errors.Join(t0.Close(), t1.Close()); err != nil {
		t.Error(err)
	}
	stillThere(t, hs, v)
}

// A truncated revocation blames no rank by itself: the end of the data stream decides.
func TestHalfRevocation(t *testing.T) {
	hs, v := trio(t, "p2p")
	var streams [2]lines
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

// stillThere checks that ranks 0 and 1 can connect in a view of their own.
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

// Bytes on a new data stream that are no valid hello end that stream only.
func TestMalformedHello(t *testing.T) {
	hs, v := trio(t, "p2p")
	as := func(change func(*wire.Greeting)) []byte {
		g := greeting(v, 2)
		change(&g)
		return hello(t, g)
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
		"no path":       as(func(g *wire.Greeting) { g.Path = 5 }),
		"other epoch":   as(func(g *wire.Greeting) { g.Epoch = 0 }),
		"other lineage": as(func(g *wire.Greeting) { g.Lineage[0]++ }),
	}
	var streams [2]lines
	t0, t1 := enter(t, hs, v, func() {
		// Rank 2 behaves correctly only after all the attempts.
		for name, bytes := range hellos {
			id, err := idOf(string(hs[0].ID()))
			if err != nil {
				t.Fatal(err)
			}
			s, err := hs[2].conns.host.NewStream(t.Context(), id, dataProtocol)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(bytes); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// Rank 0 may get a hello before it enters the view. Then it parks a hello of
			// another lineage or epoch, and does not answer it at once.
			if name != "other lineage" && name != "other epoch" {
				if err := readHello(s); err == nil {
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

// A control message with a length above the limit ends its stream, and not the host.
func TestMalformedControl(t *testing.T) {
	hs, v := trio(t, "p2p")
	id, err := idOf(string(hs[0].ID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []string{"\xff\xff\xff\xff", "\x09\x00\x00\x00half", "\x01"} {
		s, err := hs[2].conns.host.NewStream(t.Context(), id, controlProtocol)
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

// Connections that never complete the handshake do not disturb the host.
func TestGarbageFromStrangers(t *testing.T) {
	hs, v := trio(t, "p2p")
	addr, err := manet.ToNetAddr(hs[0].conns.host.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 1<<16),
		"\x13/multistream/1.0.0\n",                 // and no more
		"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n", // and no handshake
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
