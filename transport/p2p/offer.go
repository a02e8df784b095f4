package p2p

import (
	"fmt"
	"io"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mesh"
)

// offer is the payload of an Offer frame: the wishes of a host and the addresses of its direct
// port.
//
//	0 path   1 encrypt   2 direct.Offer, to the end
//
// path and encrypt are indices of mesh.Paths and encryptNames. From the two offers both sides
// compute the same kinds of paths and the same choice of encryption, so no confirmation is needed.
type offer struct {
	path    mesh.Path
	encrypt byte
	direct.Offer
}

// appendOffer appends an Offer frame to b.
func appendOffer(b []byte, o *offer) []byte {
	body := o.Offer.Append([]byte{byte(o.path), o.encrypt})
	return wire.AppendFrame(b, wire.Offer, body)
}

// readOffer reads an Offer frame.
func readOffer(r io.Reader) (offer, error) {
	_, b, err := wire.ReadFrame(r, wire.Offer)
	if err != nil {
		return offer{}, err
	}
	return decodeOffer(b)
}

// decodeOffer decodes the payload of an Offer frame.
func decodeOffer(b []byte) (offer, error) {
	if len(b) < 2 || int(b[0]) >= len(mesh.Paths()) || int(b[1]) >= len(encryptNames()) {
		return offer{}, fmt.Errorf("read offer: %d bytes that do not begin with a known path and encryption: %w", len(b), wire.ErrFormat)
	}
	o, err := direct.DecodeOffer(b[2:])
	return offer{path: mesh.Path(b[0]), encrypt: b[1], Offer: o}, err
}

// sameKernel reports whether two hosts have the same kernel ID and both allow Unix sockets. Only
// the dial shows whether the hosts can reach each other by a Unix socket, because an abstract Unix
// socket exists in one network namespace only.
func sameKernel(a, b *offer) bool {
	local := func(o *offer) bool { return o.path <= mesh.UnixPath }
	return local(a) && local(b) && a.KernelID == b.KernelID && a.KernelID != [32]byte{}
}
