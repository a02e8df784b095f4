package direct

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawOffer draws an offer that a port could make.
func drawOffer(t *rapid.T) Offer {
	o := Offer{Ticket: NewTicket()}
	copy(o.KernelID[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "kernelID"))
	for range rapid.IntRange(0, maxOfferAddrs).Draw(t, "addrs") {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		ip, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "address"))
		o.Addrs = append(o.Addrs, netip.AddrPortFrom(ip.Unmap(), rapid.Uint16().Draw(t, "port")))
	}
	return o
}

func TestOfferRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawOffer(t)
		b := want.Append([]byte("before"))
		if len(b) > MaxOffer+len("before") {
			t.Fatalf("%d bytes, at most %d", len(b), MaxOffer)
		}
		got, err := DecodeOffer(bytes.TrimPrefix(b, []byte("before")))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// Addresses beyond the limit are left out. Otherwise the other side would refuse the offer.
func TestOfferTooLong(t *testing.T) {
	var o Offer
	for range maxOfferAddrs + 3 {
		o.Addrs = append(o.Addrs, netip.AddrPortFrom(netip.IPv6Loopback(), 1))
	}
	b := o.Append(nil)
	if len(b) != MaxOffer {
		t.Errorf("%d bytes, want %d", len(b), MaxOffer)
	}
	got, err := DecodeOffer(b)
	if err != nil || len(got.Addrs) != maxOfferAddrs {
		t.Errorf("%d addresses, %v", len(got.Addrs), err)
	}
}

func TestOfferRefused(t *testing.T) {
	good := Offer{Addrs: []netip.AddrPort{netip.AddrPortFrom(loopback(), 1)}}
	b := good.Append(nil)
	mapped := append(Offer{}.head(), 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1, 1, 0)
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"one byte more":      append(bytes.Clone(b), 0),
		"too many addrs":     append(Offer{}.head(), maxOfferAddrs+1),
		"an address of 5":    append(Offer{}.head(), 1, 5, 1, 2, 3, 4, 5, 1, 0),
		"an address of 0":    append(Offer{}.head(), 1, 0, 1, 0),
		"an address twice":   mapped,
		"a port that ends":   b[:len(b)-1],
		"a ticket that ends": b[:offerHead-1],
	} {
		if o, err := DecodeOffer(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	for n := range b {
		if _, err := DecodeOffer(b[:n]); err == nil {
			t.Errorf("%d bytes of %d are an offer", n, len(b))
		}
	}
}

// head returns an encoded offer without its addrs.
func (o Offer) head() []byte {
	b := o.Append(nil)
	return b[:len(b)-1]
}

func FuzzDecodeOffer(f *testing.F) {
	o := Offer{Addrs: []netip.AddrPort{netip.AddrPortFrom(loopback(), 1), netip.AddrPortFrom(netip.IPv6Loopback(), 2)}}
	f.Add(o.Append(nil))
	f.Add(Offer{}.head())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOffer(b)
		if err != nil {
			return
		}
		if again := o.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
		o.ByTCP(loopback())
	})
}

func TestByTCP(t *testing.T) {
	port := netip.MustParseAddrPort
	o := Offer{Addrs: []netip.AddrPort{port("0.0.0.0:1"), port("10.0.0.1:2"), port("[::1]:3"), port("[fe80::1]:4")}}
	for addr, want := range map[string]string{
		"10.0.0.1":         "10.0.0.1:2", // preferred over the port that listens on all addresses
		"10.0.0.2":         "10.0.0.2:1",
		"::ffff:10.0.0.1":  "10.0.0.1:2",
		"::1":              "[::1]:3",
		"fe80::1%eth0":     "[fe80::1%eth0]:4",
		"2001:db8::1":      "", // no port listens on all IPv6 addresses
		"::ffff:127.0.0.1": "127.0.0.1:1",
	} {
		to, ok := o.ByTCP(netip.MustParseAddr(addr))
		if to.Addr != want || ok != (want != "") || ok && to.Network != "tcp" {
			t.Errorf("%s: %+v, %v; want %s", addr, to, ok, want)
		}
	}
}
