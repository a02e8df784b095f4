package direct

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Offer has the addresses at which a process can be dialled, and the ticket to dial with. An offer
// with the zero Ticket has information only.
type Offer struct {
	// KernelID is equal on processes that share a kernel, a network namespace and a user, which may
	// therefore share memory. It is zero where that is not known, and for a process without a Unix
	// socket (UnixTarget).
	KernelID [32]byte
	Ticket   Ticket
	// Addrs are the addresses and TCP ports at which the process listens. An address may be the
	// unspecified one.
	Addrs []netip.AddrPort
}

const (
	// maxOfferAddrs is the number of addresses in an encoded offer.
	maxOfferAddrs = 16
	offerHead     = 32 + numberSize + keySize
	// MaxOffer is the longest encoded offer, in bytes.
	MaxOffer = offerHead + 1 + maxOfferAddrs*(1+16+2)
)

// ErrFormat means that bytes are no encoded offer, or no valid measurement.
var ErrFormat = errors.New("malformed offer")

// Append appends the encoded offer to b. It cuts the addresses to maxOfferAddrs.
//
//	0 kernel ID   32 number   48 key   80 number of addrs
//	then for each of them: length of address (4 or 16), address, port
func (o *Offer) Append(b []byte) []byte {
	b = append(b, o.KernelID[:]...)
	b = append(b, o.Ticket.Number[:]...)
	b = append(b, o.Ticket.Key[:]...)
	addrs := o.Addrs[:min(len(o.Addrs), maxOfferAddrs)]
	b = append(b, byte(len(addrs)))
	for _, d := range addrs {
		ip := d.Addr().Unmap().AsSlice()
		b = append(append(b, byte(len(ip))), ip...)
		b = binary.LittleEndian.AppendUint16(b, d.Port())
	}
	return b
}

// DecodeOffer decodes the result of Append; b is the whole of it.
func DecodeOffer(b []byte) (Offer, error) {
	r := reader{b: b}
	var o Offer
	copy(o.KernelID[:], r.next(len(o.KernelID)))
	copy(o.Ticket.Number[:], r.next(numberSize))
	copy(o.Ticket.Key[:], r.next(keySize))
	n := int(r.byte())
	if n > maxOfferAddrs {
		return Offer{}, fmt.Errorf("direct: decode offer: %d addresses, at most %d: %w", n, maxOfferAddrs, ErrFormat)
	}
	for range n {
		ip, ok := netip.AddrFromSlice(r.next(int(r.byte())))
		port := r.next(2)
		if !ok || port == nil || ip.Is4In6() {
			r.bad = true
			break
		}
		o.Addrs = append(o.Addrs, netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(port)))
	}
	if r.bad || len(r.b) > 0 {
		return Offer{}, fmt.Errorf("direct: decode offer: %d bytes: %w", len(b), ErrFormat)
	}
	return o, nil
}

// reader reads a message from b. Once a value is missing, bad is set and all later values are zero.
type reader struct {
	b   []byte
	bad bool
}

// next returns the next n bytes; nil if there are fewer.
func (r *reader) next(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// byte returns the next byte; 0 if there is none.
func (r *reader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

// ByTCP returns the target for a peer that is reachable at ip: a port at that address, or otherwise
// a port at the unspecified address of the same family. It returns false if there is no such port.
func (o *Offer) ByTCP(ip netip.Addr) (Target, bool) {
	ip = ip.Unmap()
	for _, d := range o.Addrs {
		if d.Addr() == ip.WithZone("") {
			return tcpTarget(ip, d.Port()), true
		}
	}
	for _, d := range o.Addrs {
		// A peer that listens at all interfaces listens at ip as well.
		if d.Addr().IsUnspecified() && d.Addr().Is4() == ip.Is4() {
			return tcpTarget(ip, d.Port()), true
		}
	}
	return Target{}, false
}

// tcpTarget returns the Target of an address and a port.
func tcpTarget(ip netip.Addr, port uint16) Target {
	return Target{Network: "tcp", Addr: netip.AddrPortFrom(ip, port).String()}
}

// UnixTarget returns the target of the Unix socket of a process of this host.
func UnixTarget(id string) Target { return Target{Network: "unix", Addr: "@elrun-" + id} }

// Target is an address to dial, with its options.
type Target struct {
	Network, Addr string
	// MSS is the longest payload of TCP segments in both directions, in bytes, for paths that lose
	// longer segments. 0 means the system's choice.
	MSS int
}
