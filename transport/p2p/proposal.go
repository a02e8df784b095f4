package p2p

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/transport/mesh"
)

// Protocol IDs of the streams.
const (
	controlProtocol  protocol.ID = "/elrun/control/1"    // mesh.Control
	dataProtocol     protocol.ID = "/elrun/data/3"       // mesh.Data
	urgentProtocol   protocol.ID = "/elrun/urgent/1"     // mesh.Urgent
	bulkProtocol     protocol.ID = "/elrun/bulk/2"       // mesh.Bulk
	questionProtocol protocol.ID = "/elrun/question/1"   // mesh.Question
	proveProtocol    protocol.ID = provePrefix + version // words of strangers (admission.go)
)

// provePrefix begins the proposal of a stranger in all versions. The version follows.
const provePrefix = "/elrun/prove/"

// Words of strangers. A stranger opens one stream, and behind the proposal a byte says what it brings:
//
//	1  a newcomer its credential                                 <-  an answer of package ticket
//	2  a launcher obituaries: their number, 1 byte; for each     <-  1 if the member has told its group, 0 if it is
//	   the length of the ID, 1 byte; the ID; the signature           in none, or if a signature is wrong; 1 byte
const (
	credentialWords = 1
	obituaryWords   = 2
)

// protocolOf returns the protocol ID for streams of a kind.
func protocolOf(k mesh.Kind) protocol.ID {
	return [mesh.Kinds]protocol.ID{controlProtocol, dataProtocol, urgentProtocol, bulkProtocol, questionProtocol}[k]
}

// A stream of libp2p begins with multistream-select, by which the opener proposes a protocol and
// the other side accepts it:
//
//	opener                                    acceptor
//	/multistream/1.0.0, /elrun/data/3     ->
//	                                      <-  /multistream/1.0.0, /elrun/data/3
//	first bytes                           ->
//
// Members of a job know the same protocols, so between them the opener sends the first bytes
// together with the proposal, and does not wait for the answer (multistream.NewMSSelect). The
// functions below are for streams with strangers, of which libp2p would read lines of up to 64 KiB.

// lazyStream is a stream that sends the proposal of its protocol along with the first bytes
// written, and reads the answer before the first bytes read. A peer that has not admitted this host
// yet resets the stream, and the read fails.
type lazyStream struct {
	network.Stream
	negotiated io.ReadWriter
}

// Read implements io.Reader. Without room in b it only waits until the other side has accepted the
// protocol.
func (l *lazyStream) Read(b []byte) (int, error) { return l.negotiated.Read(b) }

// Write implements io.Writer.
func (l *lazyStream) Write(b []byte) (int, error) { return l.negotiated.Write(b) }

// propose sends the proposal of the protocol of strangers and b in one write, and waits until the other
// side has accepted the protocol. The error wraps ErrVersion if the other side answers with its own
// version of the protocol.
func propose(s io.ReadWriter, p protocol.ID, b []byte) error {
	if _, err := s.Write(append(proposalOf(p), b...)); err != nil {
		return err
	}
	switch got, err := readProposal(s); {
	case err != nil:
		return err
	case got == p:
		return nil
	case strings.HasPrefix(string(got), provePrefix) && got != proveProtocol:
		return versionError(string(got))
	default:
		return fmt.Errorf("protocol %s: the other side answered %q", p, got)
	}
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
// byte that no proposal has, and reads nothing after the proposal.
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
