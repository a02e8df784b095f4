package elastic

import (
	"context"
	"errors"
	"io"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
)

// Network is what one identity reaches the others of its job by. All methods are safe for
// concurrent use.
//
// Control messages go between processes that know each other's ID, whatever view they are in.
// State moves apart from them, as short questions with long answers, which must not hold them
// up. A view has a data plane of its own.
type Network interface {
	// Send delivers a control message, at most MaxControl bytes, to the peer or returns an
	// error; nil says that it was handed to the network, not that it arrived. It connects
	// first where needed. msg may be reused afterwards. An error that is ErrGone says
	// that certainly nobody is there; any other, that no answer came.
	Send(ctx context.Context, to ID, msg []byte) error
	// Events returns control messages and changes of connection in the order in which they
	// were seen. The receiver must keep reading. It is closed when the network is.
	Events() <-chan PeerEvent
	// Redial gives up the connections with a peer, which has not been heard of for long:
	// what is stuck in them holds up nothing any more, and the next Send makes a new
	// one. It does not block.
	Redial(peer ID)
	// Introduce lets the members in and remembers how to reach them, in addition to
	// those that it knows. It does not block.
	Introduce(members []Member) error
	// Request asks a peer and returns its answer as a stream, which the caller closes;
	// closing early is how to break off. request is at most MaxRequest bytes. ctx bounds
	// the whole answer. An answer that the peer broke off ends with an error other
	// than io.EOF.
	Request(ctx context.Context, to ID, request []byte) (io.ReadCloser, error)
	// Serve sets what answers the requests of others, before the first may come. answer
	// is called in a goroutine of its own per request; ctx ends and w fails when the
	// peer has broken off or the network closes. An error of answer breaks the stream
	// off: the peer sees an error where it expected io.EOF.
	Serve(answer func(ctx context.Context, from ID, request []byte, w io.Writer) error)
	// Connect opens the data plane of a view: it returns a Transport between the members of v
	// as soon as every one of them is reachable; self is the caller's rank. All members of v
	// call it, at about the same time. The caller owns the Transport and closes it. An error
	// of which a member is the cause is a *collective.PeerError that names it; one that no
	// later view will mend wraps ErrNoView, and ends the caller's part in the job.
	Connect(ctx context.Context, v View, self int) (transport.Transport, error)
}

// MaxRequest is the longest request of Network.Request, in bytes.
const MaxRequest = 64 << 10

// Endpoint is one identity on the network of a job.
type Endpoint struct {
	Self    Member
	Network Network
	// Keys proves decisions to peers that were not there. Without it they count only
	// among members of one view, and branches of a job do not find together.
	Keys Keys
	// Close takes the identity off the network, which closes the network's Events.
	Close func() error
}

// ErrGone: nobody listens any more where the peer did. Its process has ended, or its
// identity was closed.
var ErrGone = errors.New("nobody is there")

// MaxControl is the longest control message, in bytes.
const MaxControl = 4 << 20

// PeerEvent is something that happened on the control network.
type PeerEvent struct {
	Peer ID
	Kind PeerEventKind
	Data []byte // of a PeerMessage; the receiver owns it
	Err  error  // of a PeerDown, why
}

// PeerEventKind tells the kinds of PeerEvent apart.
type PeerEventKind uint8

// The kinds of events.
const (
	PeerMessage PeerEventKind = iota + 1
	PeerUp                    // a connection with Peer was made
	PeerDown                  // the last connection with Peer ended
)

// Pather is what a Transport may implement to tell the event log how it reaches the
// others.
type Pather interface {
	// Path describes the way to another rank; the caller fills in Who.
	Path(rank int) event.Path
}
