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
	// Introduce lets the members in and remembers how to reach them, in addition to those that
	// it knows. It does not block.
	Introduce(members []elastic.Member) error
	// Open makes one attempt to open a stream of a kind to a peer. It may wait for the peer until
	// ctx ends, or return an error, after which it is called again a little later. Errors that
	// are elastic.ErrGone, certainly nobody is there, or ErrBanned end that. The peer has taken
	// a Control stream when Open returns it; whether it takes one of the other kinds may
	// show only when that is read.
	Open(ctx context.Context, to elastic.ID, k Kind) (Stream, error)
	// Handle sets who takes the streams that others open, before the first can come. take is
	// called in a goroutine of its own for each stream, which it owns, and may return late.
	Handle(take func(k Kind, s Stream))
	// HangUp gives up the connections with a peer: what is stuck in them holds up nothing any
	// more, their streams end, and the next Open makes new ones. Streams of Data that have a
	// connection of their own may stay. When it returns what it gave up is out of use.
	HangUp(peer elastic.ID)
	// Close ends all streams and waits until every call of take has returned.
	Close() error
}

// Kind tells streams apart by what they carry.
type Kind uint8

// The kinds of streams. The values are part of formats on the wire.
const (
	Control Kind = iota // messages between processes, whatever view they are in
	Data                // frames of one view
	Urgent              // frames of the same view that must not wait behind others
	Bulk                // one request and its answer
	Kinds               // how many there are
)

// Stream is an ordered and reliable stream of bytes in both directions between two
// identities that are proven. It has one reader and one writer at a time; the other methods
// may be called meanwhile.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends the stream after what was written: the other side reads io.EOF.
	CloseWrite() error
	// Close ends the stream after what was written. Nothing more is read.
	Close() error
	// Reset ends the stream at once, in both directions and whoever reads or writes: calls of
	// this side return an error, and those of the other side one that is ErrReset, or
	// io.EOF where the carrier cannot tell. What was written before may be lost.
	Reset() error
	// SetReadDeadline and SetWriteDeadline are those of net.Conn: they also end a call that is
	// under way. A write that was ended has spoiled the stream.
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	// Peer returns who is at the other end.
	Peer() elastic.ID
	// Path describes the way that the stream takes; Who and Rank are left out.
	Path() event.Path
}

// Upgrader is a Stream of Data for which there may be a better one. When both sides have
// said hello, and so belong to one view, each calls Upgrade, with opener at the side that
// has opened the stream. They agree on the best way that both want, and go on there: the stream
// that it returns may be another one. The opener writes its hello in one call of Write, so
// that a carrier may send what it has to say of other ways along with it.
type Upgrader interface {
	Upgrade(ctx context.Context, opener bool) (Stream, error)
}

// TwoWriter is a Stream that can write a header and a payload without a copy, and of which
// small reads cost as much as large ones: it is a connection of its own.
type TwoWriter interface {
	// WriteTwo writes two slices one after the other. Either may be empty.
	WriteTwo(head, body []byte) error
}

// FilePasser is a Stream within a host that passes open files, which proves that both sides
// are of one kernel.
type FilePasser interface {
	// SendFiles writes b, which is not empty, and gives the other side the files. They stay the
	// caller's.
	SendFiles(b []byte, files []*os.File) error
	// ReceiveFiles fills b, and returns the files that came along with it, which are the
	// caller's, also where there is an error.
	ReceiveFiles(b []byte) ([]*os.File, error)
}

// Viewer is a Carrier that is told of the views of this end.
type Viewer interface {
	// Entering is called before the streams of a view are opened. An error ends the attempt.
	Entering(v elastic.View) error
	// Entered is called when all streams of a view are there.
	Entered(v elastic.View)
}

// Throttler is a Carrier that bounds the work for peers outside the view.
type Throttler interface {
	// Took is called when a message was read from a Control stream. It returns when the
	// next one may be.
	Took(from elastic.ID)
}

// ErrReset: the other side has reset the stream.
var ErrReset = errors.New("stream reset")

// ErrBanned: the peer was put out of the group, and is not let in again.
var ErrBanned = errors.New("was put out of the group")

// ErrBadID: no peer has such an ID.
var ErrBadID = errors.New("no peer has such an ID")

// Observer is a Stream that is told of each message before it is written: simulated networks,
// whose faults befall messages rather than bytes. It is called by who writes then.
type Observer interface {
	// Sending returns true if the message is to be lost: then it is not written. An error ends
	// the sending.
	Sending(m Outgoing) (lost bool, err error)
}

// Outgoing is a message of a call on a stream of Data, a control message, or a request or a
// piece of the answer on a stream of Bulk.
type Outgoing struct {
	Bytes    int                // its length
	Payload  []byte             // of control messages and requests, which must not be kept; nil otherwise
	Epoch    uint64             // of its view, on Data
	Envelope transport.Envelope // on Data
}

// ErrPath is wrapped by the errors of a Stream whose way failed, or for which the carrier has found a
// better one, while the peer lives. Nobody needs to be waited for to learn the cause.
var ErrPath = errors.New("the path changes")
