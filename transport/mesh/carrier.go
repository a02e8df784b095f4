package mesh

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// Carrier is a network below the session protocol: it makes streams of bytes between
// identities. All methods are safe for concurrent use.
type Carrier interface {
	// ID returns the identity of this end.
	ID() elastic.ID
	// Introduce adds members: it stores their addresses, and lets them connect to this end. It does
	// not remove the members that were introduced before. It does not block.
	Introduce(members []elastic.Member) error
	// Open makes one attempt to open a stream of kind k to a peer. It may wait for the peer until
	// ctx ends, or return an error. After an error the mesh calls Open again a little later, unless
	// the error is elastic.ErrGone (the peer is certainly gone) or ErrBanned. When Open returns a
	// Control stream, the peer has accepted it. A stream of another kind may be refused later: then
	// a read of the stream fails.
	Open(ctx context.Context, to elastic.ID, k Kind) (Stream, error)
	// Handle sets the function that gets the streams that others open. It is called once, before
	// the first such stream can come. The carrier calls take in a new goroutine for each stream;
	// take owns the stream, and may take long to return.
	Handle(take func(k Kind, s Stream))
	// HangUp closes the connections with a peer, so that later bytes do not wait behind bytes that
	// are stuck in the old connections. The streams of these connections end, and the next Open
	// makes a new connection. Streams of Data that have a connection of their own may stay. When
	// HangUp returns, nothing uses the closed connections any more.
	HangUp(peer elastic.ID)
	// Close ends all streams and waits until every call of take (see Handle) has returned. Only the
	// mesh calls it, after its lifetime has ended: otherwise a call of take may wait for a view for
	// ever.
	Close() error
}

// Kind tells streams apart by their content.
type Kind uint8

// The kinds of streams. The values are part of formats on the wire.
const (
	Control  Kind = iota // messages between processes, whatever view they are in
	Data                 // frames of one view
	Urgent               // frames of the same view that must not wait behind others
	Bulk                 // one request and its answer
	Question             // one question of the carrier and its answer, both short
	Kinds                // the number of kinds
)

// Stream is an ordered and reliable stream of bytes in both directions between two peers, each of
// which has proved its identity. It has one reader and one writer at a time; the other methods
// may be called while these read and write.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends the bytes of this side: the other side reads io.EOF behind them.
	CloseWrite() error
	// Close ends the stream. Bytes that were written are still delivered, and nothing more is read.
	Close() error
	// Reset ends the stream at once, in both directions, also while it is read or written. Calls
	// of this side return an error. Calls of the other side return ErrReset, or io.EOF where the
	// carrier cannot tell the difference. Bytes that were written before may be lost.
	Reset() error
	// SetReadDeadline and SetWriteDeadline work as in net.Conn: they also end a call that is
	// under way. After a deadline has ended a write the stream is unusable.
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	// Peer returns the ID of the peer at the other end.
	Peer() elastic.ID
	// Path describes the route of the stream; it does not set the fields Who and Rank.
	Path() event.Path
}

// Upgrader is a Stream of kind Data that can be replaced by a stream over a better path. When both
// sides have said hello, and so belong to one view, each side calls Upgrade; opener is true at the
// side that has opened the stream. The two sides agree on the best path that both allow. Upgrade
// returns the stream over that path, which may be the same stream. The opener writes its hello in
// one call of Write, so that the carrier can send its offer of other paths along with the hello.
type Upgrader interface {
	Upgrade(ctx context.Context, opener bool) (Stream, error)
}

// TwoWriter is a Stream that can write a header and a payload without a copy. It has a connection
// of its own, so each read is a system call: a small read costs as much as a large one.
type TwoWriter interface {
	// WriteTwo writes two slices one after the other. Either may be empty.
	WriteTwo(head, body []byte) error
}

// FilePasser is a Stream within a host that can pass open files to the other side. A file that
// arrives proves that both sides run on one kernel.
type FilePasser interface {
	// SendFiles writes b, which is not empty, and passes the files along with it. The caller
	// still owns its files afterwards.
	SendFiles(b []byte, files []*os.File) error
	// ReceiveFiles fills b, and returns the files that came along with those bytes. The caller
	// owns the files, also if there is an error.
	ReceiveFiles(b []byte) ([]*os.File, error)
}

// Viewer is a Carrier that the mesh informs of the views of this end.
type Viewer interface {
	// Entering is called before the streams of a view are opened. An error ends the attempt.
	Entering(v elastic.View) error
	// Entered is called when all streams of a view are there.
	Entered(v elastic.View)
}

// Throttler is a Carrier that bounds the work for peers outside the view.
type Throttler interface {
	// Took is called after a message was read from a Control stream. It blocks until the next
	// message may be read.
	Took(from elastic.ID)
}

// ErrReset: the other side has reset the stream.
var ErrReset = errors.New("stream reset")

// ErrBanned: the peer was put out of the group, and may not join again.
var ErrBanned = errors.New("was put out of the group")

// ErrBadID: no peer has such an ID.
var ErrBadID = errors.New("no peer has such an ID")

// Observer is a Stream that the mesh informs of each message before it writes the message.
// Simulated networks use it, because their faults concern messages rather than bytes. The goroutine
// that writes calls it.
type Observer interface {
	// Sending returns true if the message is to be lost: then the caller does not write it. After
	// an error the caller does not write the message either, and reports the error.
	Sending(m Outgoing) (lost bool, err error)
}

// Outgoing is a message of a call on a stream of Data, a control message, or a request or a
// piece of the answer on a stream of Bulk or Question.
type Outgoing struct {
	// Bytes is the length of the message.
	Bytes int
	// Payload is the content of a control message or request, and nil for other messages. Sending
	// must not keep it.
	Payload []byte
	// Epoch is the epoch of the view, for a message on a Data stream.
	Epoch uint64
	// Envelope is the envelope of a message on a Data stream.
	Envelope transport.Envelope
}

// ErrPath is wrapped by the errors of a Stream whose path has failed while the peer is alive. Then the cause is known, so the mesh does not wait for a
// revocation by the peer.
var ErrPath = errors.New("the path changes")
