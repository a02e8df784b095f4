package p2p

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/transport/mesh"
)

// Protocol IDs of the streams.
const (
	controlProtocol protocol.ID = "/elrun/control/1"   // mesh.Control
	dataProtocol    protocol.ID = "/elrun/data/3"      // mesh.Data
	urgentProtocol  protocol.ID = "/elrun/urgent/1"    // mesh.Urgent
	bulkProtocol    protocol.ID = "/elrun/bulk/2"      // mesh.Bulk
	proveProtocol   protocol.ID = "/elrun/prove/1"     // requests of newcomers (prove.go)
	addrsProtocol   protocol.ID = "/elrun/addresses/1" // exchange of addresses (addresses.go)
	punchProtocol   protocol.ID = "/elrun/punch/1"     // hole punching (punchmsg.go)
	surveyProtocol  protocol.ID = "/elrun/survey/1"    // measurements of direct ports (watch.go)
	pingProtocol    protocol.ID = "/elrun/ping/1"      // liveness of a peer (watch.go)
)

// protocolOf returns the protocol ID for streams of a kind.
func protocolOf(k mesh.Kind) protocol.ID {
	return [mesh.Kinds]protocol.ID{controlProtocol, dataProtocol, urgentProtocol, bulkProtocol}[k]
}

// A stream of libp2p begins with multistream-select, by which the opener proposes a protocol and
// the other side accepts it:
//
//	opener                                    acceptor
//	/multistream/1.0.0, /elrun/data/3     ->
//	                                      <-  /multistream/1.0.0, /elrun/data/3
//	first bytes                           ->
//
// lazyStream sends the first bytes together with the proposal, and does not wait for the answer.

// lazyStream is a stream that sends the proposal of its protocol along with the first bytes
// written, and reads the answer before the first bytes read. That saves a round trip of
// multistream-select. All hosts of a job know the same protocols, so a valid answer is the proposal
// itself. One goroutine may use it at a time, except for the methods that network.Stream allows
// concurrently.
type lazyStream struct {
	network.Stream
	proposal        []byte // frames of multistream-select (proposalOf)
	after           []byte // appended to the first bytes written
	written, agreed bool   // the proposal was sent; the answer was read
}

// Write implements io.Writer. The first call sends the proposal, b and s.after in one write of the
// stream, and so in one packet if they fit. The result counts only the bytes of b.
func (s *lazyStream) Write(b []byte) (int, error) {
	if s.written {
		return s.Stream.Write(b)
	}
	s.written = true
	n, err := s.Stream.Write(slices.Concat(s.proposal, b, s.after))
	return min(max(0, n-len(s.proposal)), len(b)), err
}

// Read implements io.Reader. The first call waits until the other side has accepted the protocol.
func (s *lazyStream) Read(b []byte) (int, error) {
	if err := s.negotiate(); err != nil {
		return 0, err
	}
	return s.Stream.Read(b)
}

// negotiate sends the proposal if it was not sent, and waits until the other side has accepted it.
// A peer that does not know the protocol answers "na"; a peer that has not admitted this host yet
// resets the stream, and the read fails.
func (s *lazyStream) negotiate() error {
	if s.agreed {
		return nil
	}
	if !s.written {
		if _, err := s.Write(nil); err != nil {
			return err
		}
	}
	got := make([]byte, len(s.proposal))
	if _, err := io.ReadFull(s.Stream, got); err != nil {
		return err
	}
	if !bytes.Equal(got, s.proposal) {
		return fmt.Errorf("protocol %s: the other side answered %q", s.Protocol(), got)
	}
	s.agreed = true
	return nil
}

// proposalOf returns the proposal of p: the name of multistream-select and p, each as a line with
// its length in front.
func proposalOf(p protocol.ID) []byte {
	var b []byte
	for _, line := range []string{multistream.ProtocolID + "\n", string(p) + "\n"} {
		b = append(binary.AppendUvarint(b, uint64(len(line))), line...)
	}
	return b
}

// expectProposal reads the proposal of p. It fails at the first line that differs. libp2p's own
// negotiation would read lines of up to 64 KiB from a stranger, and answer proposals of any
// protocol.
func expectProposal(r io.Reader, p protocol.ID) error {
	for rest := proposalOf(p); len(rest) > 0; {
		line := rest[:1+rest[0]] // lengths below 128 take one byte
		rest = rest[len(line):]
		for _, want := range [][]byte{line[:1], line[1:]} { // the length first, as nothing may follow a shorter line
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("a stranger proposed a protocol with %q, want %s", got, p)
			}
		}
	}
	return nil
}

// waitEnd waits until the other side ends the stream, which the other side does when it has read
// the answer. A reset by this side would discard bytes in flight. The caller has set a deadline.
func waitEnd(s network.Stream) { _, _ = s.Read(make([]byte, 1)) }
