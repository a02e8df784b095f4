package p2p

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
)

// canned is a stream that reads given bytes and then ends.
type canned struct {
	network.Stream // nil: what is not below is not used
	io.Reader
}

func (c canned) Read(b []byte) (int, error)     { return c.Reader.Read(b) }
func (canned) Write(b []byte) (int, error)      { return len(b), nil }
func (canned) Close() error                     { return nil }
func (canned) Reset() error                     { return nil }
func (canned) SetWriteDeadline(time.Time) error { return nil }
func (canned) SetDeadline(time.Time) error      { return nil }

// Whatever a member writes on its streams, the transport ends with an error or not at
// all, and Close returns.
func FuzzStreams(f *testing.F) {
	data := frame(wire.Header{Kind: wire.Data, Seq: 1, Length: 3}, "abc")
	signal := frame(wire.Header{Kind: wire.Signal, Length: 2}, "hi")
	bye := frame(wire.Header{Kind: wire.Bye}, "")
	cause := transport.EncodeCause(1, io.EOF)
	revoke := frame(wire.Header{Kind: wire.Revoke, Length: uint64(len(cause))}, string(cause))
	f.Add(append(append(data, signal...), bye...), revoke)
	f.Add(data[:70], frame(wire.Header{Kind: wire.Ack}, ""))
	f.Add([]byte("garbage"), []byte("garbage"))
	f.Fuzz(func(t *testing.T, data, urgent []byte) {
		if len(data) >= wire.HeaderSize && binary.LittleEndian.Uint64(data[16:]) > 1<<20 {
			return // allowed, but too slow to try often
		}
		v := elastic.View{Members: []elastic.Member{{ID: "a"}, {ID: "b"}}}
		streams := make([][streamsPerPair]link, 2)
		streams[1][dataStream] = link{line: canned{Reader: bytes.NewReader(data)}}
		streams[1][urgentStream] = link{line: canned{Reader: bytes.NewReader(urgent)}}
		e := newTransport(make(chan struct{}), &attempt{view: v, streams: streams}, nil)
		if err := e.Recv(t.Context(), 1, transport.Envelope{Seq: 99}, nil); err == nil &&
			!bytes.Contains(data, []byte{99}) {
			t.Error("received what was not sent")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func FuzzHello(f *testing.F) {
	var good bytes.Buffer
	if err := sendHello(&good, wire.Greeting{Epoch: 1, Job: "job"}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		g, err := readHello(bytes.NewReader(in))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := sendHello(&out, g); err != nil || !bytes.HasPrefix(in, out.Bytes()) {
			t.Errorf("%x became %x, %v", in, out.Bytes(), err)
		}
	})
}

// Whatever a member offers is refused, or comes out as it was.
func FuzzOffer(f *testing.F) {
	o := offer{path: unixPath, encrypt: neverEncrypt}
	o.Socket, o.Doors = "@s", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}
	f.Add(appendOffer(nil, &o))
	f.Add(frame(wire.Header{Kind: wire.Offer, Length: 2}, "\x05\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		o, err := readOffer(bytes.NewReader(in))
		if err != nil {
			return
		}
		if out := appendOffer(nil, &o); !bytes.HasPrefix(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}

// Whatever a member chooses is refused, or comes out as it was.
func FuzzChoice(f *testing.F) {
	for _, c := range []choice{{code: stays, why: "refused"}, {code: dialled}, {code: yourTurn, ticket: direct.NewTicket()}} {
		f.Add(c.append(nil)[wire.HeaderSize:])
	}
	f.Add([]byte{yourTurn})
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := decodeChoice(in)
		if err != nil || len(c.why) > maxWhy {
			return
		}
		if out := c.append(nil)[wire.HeaderSize:]; !bytes.Equal(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}

// The longest offer fits into a frame.
func TestOfferFits(t *testing.T) {
	if got := uint64(2 + direct.MaxOffer); got > wire.MaxPayload(wire.Offer) {
		t.Errorf("an offer can have %d bytes, a frame %d", got, wire.MaxPayload(wire.Offer))
	}
	if got := uint64(shareFixed + maxWhy); got > wire.MaxPayload(wire.Share) {
		t.Errorf("a message about sharing can have %d bytes, a frame %d", got, wire.MaxPayload(wire.Share))
	}
	if most := 1 + 2*shm.MaxRanks; direct.MaxFiles != 0 && most > direct.MaxFiles {
		t.Errorf("%d files can come at once, direct sends %d", most, direct.MaxFiles)
	}
}

func FuzzShare(f *testing.F) {
	m := shareMessage{step: stepReady, mask: 5, layout: 7, why: "because"}
	f.Add(m.append(nil))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := decodeShare(in)
		if err != nil {
			return
		}
		if out := m.append(nil); !bytes.Equal(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}

func FuzzControl(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00abc\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("\xfe\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out []byte
		err := readMessages(bytes.NewReader(in), func() {
			out = binary.LittleEndian.AppendUint32(out, ackMark)
		}, func(msg []byte) {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(msg)))
			out = append(out, msg...)
		})
		if err == nil || !bytes.HasPrefix(in, out) {
			t.Errorf("%x became %x, %v", in, out, err)
		}
	})
}

// Whatever a host tells of addresses is refused, or within the bounds. Written again it is
// the same.
func FuzzBook(f *testing.F) {
	f.Add([]byte(`{"open":true,"error":"not here","addrs":{"a":["/ip4/127.0.0.1/tcp/1","nonsense"],"b":null}}`))
	f.Add([]byte(`{"addrs":{"a":[` + strings.Repeat(`"/ip4/127.0.0.1/tcp/1",`, maxBookAddrs) + `""]},"error":"` + strings.Repeat("long ", maxBookError) + `"}`))
	f.Add([]byte(`{"addrs":{"a":[]},"addrs":{"b":["x"]}}`))
	f.Add([]byte(`{"addrs":["a"]}`))
	f.Add([]byte(`{"addrs":{}} trailing`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := readBook(bytes.NewReader(text))
		if err != nil {
			return
		}
		if len(b.Error) > maxBookError {
			t.Errorf("the reason has %d bytes", len(b.Error))
		}
		for id, addrs := range b.Addrs {
			if len(addrs) > maxBookAddrs {
				t.Errorf("%d addresses of %q", len(addrs), id)
			}
		}
		var out bytes.Buffer
		if err := writeBook(&out, b); err != nil {
			t.Fatal(err)
		}
		again, err := readBook(&out)
		b.Error, again.Error = "", "" // a character that was cut is written as another
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%+v became %+v, %v", b, again, err)
		}
	})
}

// A message about addresses ends somewhere.
func TestLongBook(t *testing.T) {
	text := strings.NewReader(`{"addrs":{"a":["` + strings.Repeat("x", maxBook))
	if _, err := readBook(text); err == nil || !strings.Contains(err.Error(), "too long") || text.Len() > 32 {
		t.Errorf("%v, and %d bytes are not read", err, text.Len())
	}
}
