package p2p

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/transport/mesh"
)

// Protocol IDs of the streams.
const (
	controlProtocol protocol.ID = "/elrun/control/1"    // mesh.Control
	dataProtocol    protocol.ID = "/elrun/data/3"       // mesh.Data
	urgentProtocol  protocol.ID = "/elrun/urgent/1"     // mesh.Urgent
	bulkProtocol    protocol.ID = "/elrun/bulk/2"       // mesh.Bulk
	proveProtocol   protocol.ID = provePrefix + version // requests of newcomers (prove.go)
	addrsProtocol   protocol.ID = "/elrun/addresses/1"  // exchange of addresses (addresses.go)
	punchProtocol   protocol.ID = "/elrun/punch/1"      // hole punching (punchmsg.go)
	surveyProtocol  protocol.ID = "/elrun/survey/1"     // measurements of direct ports (watch.go)
	pingProtocol    protocol.ID = "/elrun/ping/1"       // liveness of a peer (watch.go)
)

// provePrefix begins the proposal of a newcomer in all versions. The version follows.
const provePrefix = "/elrun/prove/"

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
// A peer that does not know the protocol answers "na", or with its own version of the protocol; a peer that has not admitted this host yet
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
	got, err := readProposal(s.Stream)
	switch {
	case err != nil:
		return err
	case got == s.Protocol():
	case strings.HasPrefix(string(got), provePrefix) && got != proveProtocol:
		return versionError(string(got))
	default:
		return fmt.Errorf("protocol %s: the other side answered %q", s.Protocol(), got)
	}
	s.agreed = true
	return nil
}

// proposalOf returns the proposal of p: the name of multistream-select and p, each as a line with
// its length in front.
func proposalOf(p protocol.ID) []byte { return append(frameOf(multistream.ProtocolID), frameOf(p)...) }

// frameOf returns a line of multistream-select with its length in front.
func frameOf(p protocol.ID) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(p)+1)), string(p)+"\n"...)
}

// maxProtocol is the length of the longest protocol ID that readProposal takes, with the line end.
// Lengths below 128 take one byte.
const maxProtocol = 40

// readProposal reads a proposal, or the answer to it, and returns the protocol. It fails at the first
// byte that no proposal has, and reads nothing after the proposal. libp2p's own negotiation would
// read lines of up to 64 KiB from a stranger, and answer proposals of any protocol.
func readProposal(r io.Reader) (protocol.ID, error) {
	name := frameOf(multistream.ProtocolID)
	for _, want := range [][]byte{name[:1], name[1:]} { // the length first, as nothing may follow a shorter line
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil {
			return "", err
		}
		if !bytes.Equal(got, want) {
			return "", fmt.Errorf("%q is no proposal of a protocol", got)
		}
	}
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", err
	}
	if length[0] < 1 || length[0] > maxProtocol {
		return "", fmt.Errorf("a protocol with a name of %d bytes", length[0])
	}
	line := make([]byte, length[0])
	if _, err := io.ReadFull(r, line); err != nil {
		return "", err
	}
	return protocol.ID(bytes.TrimSuffix(line, []byte("\n"))), nil
}

// waitEnd waits until the other side ends the stream, which the other side does when it has read
// the answer. A reset by this side would discard bytes in flight. The caller has set a deadline.
func waitEnd(s network.Stream) { _, _ = s.Read(make([]byte, 1)) }
