package punch

import (
	"bytes"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// An encoded message decodes to the same message, and only with its own secret. A change of any byte makes it invalid.
func TestMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCredential()
		m := message{answer: rapid.Bool().Draw(t, "answer"), user: c.User, role: rapid.SampledFrom([]byte{initiator, responder}).Draw(t, "role")}
		copy(m.tx[:], rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "tx"))
		if m.answer {
			size := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
			ip, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "ip"))
			m.mapped = netip.AddrPortFrom(ip.Unmap(), rapid.Uint16().Draw(t, "port"))
		}
		b := m.encode(&c.Secret)
		got, ok := parse(b)
		if !ok || got.message != m || !got.opens(&c.Secret) {
			t.Fatalf("%+v: got %+v, %v", m, got.message, ok)
		}
		other := NewCredential()
		if got.opens(&other.Secret) {
			t.Fatal("opens with another secret")
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got, ok := parse(b); ok && got.opens(&c.Secret) {
			t.Fatalf("a changed message is taken: %+v", got.message)
		}
	})
}

// The example in RFC 5769, section 2.2, is decoded, for the one attribute that this package shares with it.
func TestXorMapped(t *testing.T) {
	m := message{tx: [12]byte{0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae}, mapped: netip.MustParseAddrPort("192.0.2.1:32853")}
	want := []byte{0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43}
	if got := m.xorMapped(); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// FuzzParse checks that arbitrary bytes are decoded within their bounds. A valid message is encoded to the same bytes again,
// unless it has unknown attributes.
func FuzzParse(f *testing.F) {
	c := Credential{User: [userSize]byte{1}, Secret: [32]byte{2}}
	for _, m := range []message{
		{user: c.User, role: initiator},
		{answer: true, user: c.User, role: responder, mapped: netip.MustParseAddrPort("192.0.2.1:5")},
		{answer: true, user: c.User, role: responder, mapped: netip.MustParseAddrPort("[2001:db8::1]:5")},
	} {
		f.Add(m.encode(&c.Secret))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parse(b)
		if !ok {
			return
		}
		again, ok := parse(m.encode(&c.Secret))
		if !ok || again.message != m.message {
			t.Errorf("%+v became %+v", m.message, again.message)
		}
	})
}
