package p2p

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

// If the direct port of one host does not answer, that host dials the other, whichever of them has
// dialled libp2p's connection or opens the stream.
func TestPathTheOtherWay(t *testing.T) {
	for path, kind := range map[string]string{"direct": "direct", "unix": "unix", "auto": "shm"} {
		for closed := range 2 {
			for dials := range 2 {
				hs, v := party(t, path, path)
				shut(t, hs[closed])
				introduce(t, hs, v)
				if err := hs[dials].dialer.reach(t.Context(), mustID(t, hs[1-dials])); err != nil {
					t.Fatal(err)
				}
				ts := mustMeet(t, hs, v)
				for rank := range ts {
					wantPath(t, ts, rank, 1-rank, kind, "")
				}
				talk(t, ts)
				endAll(t, ts)
			}
		}
	}
}

// The side that has dialled libp2p's connection dials first, except for Unix sockets. No side dials
// where no direct connection is wanted.
func TestDialOrder(t *testing.T) {
	for paths, want := range map[[2]string][2][]bool{
		{"direct", "direct"}: {{true, false}, {false, true}},
		{"auto", "unix"}:     {{true, false}, {true, false}},
		{"direct", "p2p"}:    {nil, nil},
		{"p2p", "auto"}:      {nil, nil},
	} {
		hs, v := party(t, paths[:]...)
		came := make(chan network.Stream, 1)
		hs[1].conns.host.SetStreamHandler("/test", func(s network.Stream) { came <- s })
		introduce(t, hs, v)
		s, err := hs[0].conns.host.NewStream(t.Context(), mustID(t, hs[1]), "/test")
		if err == nil {
			_, err = s.Write([]byte("x")) // without a byte the other side does not see the stream
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []network.Stream{s, <-came} {
			if got := hs[i].paths.dialOrder(&stream{lazyStream: &lazyStream{s, s}}, hs[1-i].paths.offer(direct.NewTicket())); !slices.Equal(got, want[i]) {
				t.Errorf("%v: turns %v of the streams of %d, want %v", paths, got, i, want[i])
			}
			_ = s.Reset()
		}
	}
}

// introduce introduces the hosts to each other.
func introduce(t testing.TB, hs []*Host, v elastic.View) {
	t.Helper()
	for _, h := range hs {
		if err := h.Introduce(v.Members); err != nil {
			t.Fatal(err)
		}
	}
}

// mustID returns the libp2p ID of a host.
func mustID(t testing.TB, h *Host) peer.ID {
	t.Helper()
	id, err := idOf(string(h.ID()))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A malformed offer or choice of a member ends its stream only, and the member can connect again.
func TestMalformedOffers(t *testing.T) {
	hs, v := trio(t, "direct")
	good := appendOffer(nil, hs[2].paths.offer(direct.Ticket{}))
	chosen := func(b ...byte) []byte {
		return frame(wire.Header{Kind: wire.Choice, Length: uint64(len(b))}, string(b))
	}
	libp2pOnly := appendOffer(nil, &offer{path: mesh.StreamPath})
	turn := choice{code: askDial, ticket: direct.NewTicket()}.append(nil)
	tests := map[string][][]byte{ // the bytes behind the hello, and the bytes behind the answer
		"garbage":               {[]byte(strings.Repeat("garbage!", 20))},
		"another kind":          {frame(wire.Header{Kind: wire.Bye}, "")},
		"an unknown path":       {frame(wire.Header{Kind: wire.Offer, Length: 2}, "\x05\x00")},
		"an unknown encryption": {frame(wire.Header{Kind: wire.Offer, Length: 2}, "\x00\x03")},
		"half an offer":         {frame(wire.Header{Kind: wire.Offer, Length: 10}, "0123456789")},
		"no choice":             {good, frame(wire.Header{Kind: wire.Bye}, "")},
		"an empty choice":       {good, chosen()},
		"an unknown choice":     {good, chosen(3)},
		"half a ticket":         {good, chosen(append([]byte{askDial}, make([]byte, 47)...)...)},
		"turn after turn":       {good, slices.Concat(turn, turn)},
		"what was not offered":  {libp2pOnly, chosen(1)},
	}
	var streams [2]lines
	t0, t1 := enter(t, hs, v, func() {
		for name, parts := range tests {
			if err := speak(t, hs, v, parts); err == nil {
				t.Errorf("%s: the stream goes on", name)
			}
		}
		streams = impostor(t, hs, v)
	})
	hangUp(streams)
	endAll(t, []*mesh.Transport{t0, t1})
}

// speak opens a data stream from rank 2 to rank 0. It writes parts[0] directly after its hello
// and parts[1], if there is one, after the answer. It returns how the stream ends.
func speak(t testing.TB, hs []*Host, v elastic.View, parts [][]byte) error {
	t.Helper()
	s, err := hs[2].conns.host.NewStream(t.Context(), mustID(t, hs[0]), dataProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	if _, err := s.Write(append(hello(t, greeting(v, 2)), parts[0]...)); err != nil {
		return err
	}
	if len(parts) > 1 {
		if err := readHello(s); err != nil {
			t.Errorf("no answer to a good offer: %v", err)
			return err
		}
		if _, err := readOffer(s); err != nil {
			t.Errorf("no offer in return: %v", err)
			return err
		}
		if _, err := s.Write(parts[1]); err != nil {
			return err
		}
	}
	_, err = io.ReadAll(s)
	return err
}
