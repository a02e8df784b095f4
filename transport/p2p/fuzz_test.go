package p2p

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

// Any bytes are refused as an offer, or encode again to the same bytes.
func FuzzOffer(f *testing.F) {
	o := offer{path: mesh.UnixPath, encrypt: neverEncrypt}
	o.Addrs = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}
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

// Any bytes are refused as a choice, or encode again to the same bytes.
func FuzzChoice(f *testing.F) {
	for _, c := range []choice{{code: keepStream, why: "refused"}, {code: dialled}, {code: askDial, ticket: direct.NewTicket()}} {
		f.Add(c.append(nil)[wire.HeaderSize:])
	}
	f.Add([]byte{askDial})
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
}

// Any bytes are refused as a message about addresses, or decode to a message within the limits.
// Encoded again it decodes to the same.
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
		if err := json.NewEncoder(&out).Encode(b); err != nil {
			t.Fatal(err)
		}
		again, err := readBook(&out)
		b.Error, again.Error = "", "" // a character that was cut is written as another
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%+v became %+v, %v", b, again, err)
		}
	})
}

// A message about addresses is refused if it is longer than maxBook.
func TestLongBook(t *testing.T) {
	text := strings.NewReader(`{"addrs":{"a":["` + strings.Repeat("x", maxBook))
	if _, err := readBook(text); err == nil || !strings.Contains(err.Error(), "too long") || text.Len() > 32 {
		t.Errorf("%v, and %d bytes are not read", err, text.Len())
	}
}
